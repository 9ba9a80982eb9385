#include <fmt/format.h>

#include <functional>

#include "rlx/ops/activation.h"
#include "rlx/ops/build.h"
#include "rlx/ops/conv.h"
#include "rlx/ops/dot_general.h"
#include "rlx/ops/group.h"
#include "rlx/ops/reduce.h"
#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(Group);

namespace {

struct Operand {
  DType dtype;
  Dims shape;
};

using Body = std::function<std::vector<Value>(Builder&, std::span<const Value>)>;

GraphRef make_body(const std::vector<Operand>& operands, const Body& build) {
  auto graph = std::make_shared<Graph>("body");
  Builder b(*graph);
  std::vector<Value> inputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    inputs.push_back(input(b, fmt::format("x{}", i), operands[i].dtype,
                           Shape(std::span<const int64_t>(operands[i].shape))));
  }
  const std::vector<Value> outputs = build(b, inputs);
  for (size_t i = 0; i < outputs.size(); ++i) graph->add_output(fmt::format("y{}", i), outputs[i]);
  return graph;
}

class Samples {
 public:
  // Every value of a group is rounded several times: `reduction` is that of the root.
  void add(const std::string& name, std::vector<Operand> operands, const Body& build,
           int64_t reduction, bool strict = false) {
    Sample s;
    s.name = name;
    s.attrs = Attrs::of(kGroupOp.fields, GroupAttrs{make_body(operands, build), strict});
    for (Operand& o : operands) s.operands.push_back({o.dtype, std::move(o.shape), {}});
    s.reduction = reduction;
    s.extra_ulps = 16;
    s.scale = 4;
    // Every call rounds to 16 bits, far coarser than the sums that tolerances are made for.
    if (strict && s.operands[0].dtype == DType::kF16) s.scale *= 0x1p13;
    if (strict && s.operands[0].dtype == DType::kBF16) s.scale *= 0x1p16;
    all.push_back(std::move(s));
  }
  std::vector<Sample> all;
};

std::vector<Value> linear(Builder& b, std::span<const Value> x, ActivationKind kind) {
  return {activation(b, kind, add(b, matmul(b, x[0], x[1]), x[2]))};
}

std::vector<Value> relu_linear(Builder& b, std::span<const Value> x) {
  return linear(b, x, ActivationKind::kRelu);
}

// LayerNorm of a residual sum that is a result too; gamma and beta come first.
std::vector<Value> residual_norm(Builder& b, std::span<const Value> x) {
  const Value s = add(b, x[2], x[3]);
  return {layer_norm(b, s, x[0], x[1]), s};
}

std::vector<Value> masked_softmax(Builder& b, std::span<const Value> x) {
  return {softmax(b, add(b, mul(b, x[0], 0.25), x[1]))};
}

void add_products(Samples& s) {
  for (DType t : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    const std::string name(to_string(t));
    const std::vector<Operand> wide{{t, {37, 17}}, {t, {17, 29}}, {t, {29}}};
    s.add(name + "_matmul", wide, relu_linear, 17);
    s.add(name + "_matmul_strict", wide, relu_linear, 17, true);
    s.add(
        name + "_gelu", {{t, {3, 5}}, {t, {5, 64}}, {t, {64}}},
        [](Builder& b, std::span<const Value> x) { return linear(b, x, ActivationKind::kGelu); },
        5);
    s.add(
        name + "_conv", {{t, {2, 3, 6, 7}}, {t, {4, 3, 3, 3}}, {t, {1, 4, 1, 1}}},
        [](Builder& b, std::span<const Value> x) -> std::vector<Value> {
          return {relu(b, add(b, conv(b, x[0], x[1], ConvAttrs{}), x[2]))};
        },
        27);
  }
  const DType f = DType::kF32;
  s.add(
      "residual_and_product", {{f, {2, 5, 8}}, {f, {8, 6}}, {f, {2, 5, 6}}},
      [](Builder& b, std::span<const Value> x) -> std::vector<Value> {
        const Value y = matmul(b, x[0], x[1]);
        return {y, add(b, y, x[2]), less(b, y, x[2])};
      },
      8);
  s.add(
      "bool_only", {{f, {5, 8}}, {f, {8, 6}}, {f, {1}}},
      [](Builder& b, std::span<const Value> x) -> std::vector<Value> {
        return {less(b, matmul(b, x[0], x[1]), x[2])};
      },
      8);
  s.add(
      "contract_first", {{f, {16, 5}}, {f, {16, 3}}, {f, {5, 1}}},
      [](Builder& b, std::span<const Value> x) -> std::vector<Value> {
        return {mul(b, dot_general(b, x[0], x[1], {{0}, {0}, {}, {}}), x[2])};
      },
      16);
  s.add(
      "depthwise", {{f, {1, 5, 9}}, {f, {5, 1, 3}}, {f, {5, 1}}},
      [](Builder& b, std::span<const Value> x) -> std::vector<Value> {
        ConvAttrs a;
        a.groups = 5;
        return {relu(b, add(b, conv(b, x[0], x[1], a), x[2]))};
      },
      3);
  s.add("column", {{f, {70, 33}}, {f, {33, 1}}, {f, {70, 1}}}, relu_linear, 33);
  s.add("large", {{f, {130, 300}}, {f, {300, 290}}, {f, {290}}}, relu_linear, 300);
  s.all.back().scale = 16;
  s.add("no_rows", {{f, {0, 4}}, {f, {4, 3}}, {f, {3}}}, relu_linear, 4);
  s.add("no_sum", {{f, {2, 0}}, {f, {0, 3}}, {f, {3}}}, relu_linear, 1);
  s.add("one", {{f, {1, 1}}, {f, {1, 1}}, {f, {1}}}, relu_linear, 1);
}

void add_rows(Samples& s) {
  for (DType t : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    const std::string name(to_string(t));
    const std::vector<Operand> norm{{t, {19}}, {t, {19}}, {t, {7, 19}}, {t, {7, 19}}};
    s.add(name + "_norm", norm, residual_norm, 19);
    s.add(name + "_norm_strict", norm, residual_norm, 19, true);
    s.add(name + "_softmax", {{t, {2, 3, 31}}, {t, {3, 31}}}, masked_softmax, 31);
    s.add(
        name + "_sum_squares", {{t, {5, 2, 17}}},
        [](Builder& b, std::span<const Value> x) -> std::vector<Value> {
          const Value m = mean(b, mul(b, x[0], x[0]), {1, 2}, true);
          return {rsqrt(b, add(b, m, 0.5))};
        },
        34);
  }
  const DType f = DType::kF32;
  s.add(
      "max_of_relu", {{f, {300, 40}}},
      [](Builder& b, std::span<const Value> x) -> std::vector<Value> {
        return {neg(b, reduce(b, ReduceKind::kMax, relu(b, x[0]), {1}))};
      },
      1);
  s.add(
      "scaled_norm", {{f, {9, 530}}, {f, {530}}, {f, {530}}, {f, {9, 1}}},
      [](Builder& b, std::span<const Value> x) -> std::vector<Value> {
        const Value y = layer_norm(b, x[0], x[1], x[2]);
        return {mul(b, y, x[3]), relu(b, y)};
      },
      530);
  s.add(
      "empty_rows", {{f, {4, 0}}},
      [](Builder& b, std::span<const Value> x) -> std::vector<Value> {
        return {add(b, sum(b, relu(b, x[0]), {1}), 1)};
      },
      1);
  s.add("no_softmax", {{f, {0, 5}}, {f, {5}}}, masked_softmax, 5);
}

std::vector<Sample> samples() {
  Samples s;
  add_products(s);
  add_rows(s);
  return std::move(s.all);
}

std::vector<WrongCall> wrong_calls() {
  const DType f = DType::kF32;
  const std::vector<Operand> operands{{f, {2, 4}}, {f, {4, 3}}, {f, {3}}};
  const std::vector<TensorType> types{{f, {2, 4}}, {f, {4, 3}}, {f, {3}}};
  const auto with = [](GraphRef body) {
    return Attrs::of(kGroupOp.fields, GroupAttrs{std::move(body), false});
  };
  const GraphRef good = make_body(operands, relu_linear);
  const GraphRef plain = make_body(
      operands,
      [](Builder& b, std::span<const Value> x) -> std::vector<Value> { return {relu(b, x[0])}; });
  const GraphRef two =
      make_body(operands, [](Builder& b, std::span<const Value> x) -> std::vector<Value> {
        const Value y = matmul(b, x[0], x[1]);
        return {softmax(b, add(b, y, x[2]))};
      });
  const GraphRef through =
      make_body(operands, [](Builder& b, std::span<const Value> x) -> std::vector<Value> {
        return {matmul(b, x[0], x[1]), x[2]};
      });
  auto other = types;
  other[2] = {f, {4}};
  return {
      {"no_body", with(nullptr), types, "the attribute 'body' is missing"},
      {"too_few", with(good), {types[0], types[1]}, "takes 3 inputs, 2 operands were given"},
      {"other_type", with(good), other, "operand 2 is f32[4], the body takes f32[3]"},
      {"no_root", with(plain), types, "needs one call that is neither elementwise nor a leaf"},
      {"two_roots", with(two), types, "needs one call that is neither elementwise nor a leaf"},
      {"passed_through", with(through), types, "is not computed by the body"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Group) = {samples, wrong_calls};

}  // namespace rlx
