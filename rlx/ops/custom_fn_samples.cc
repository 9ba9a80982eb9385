#include "rlx/ops/custom_fn.h"

#include "rlx/ops/control_samples.h"
#include "rlx/ops/reduce.h"

namespace rlx {

RLX_USE_OP(CustomFn);

namespace {

Attrs attrs(GraphRef forward, GraphRef vjp = nullptr, GraphRef jvp = nullptr) {
  return Attrs::of(kCustomFnOp.fields,
                   CustomFnAttrs{std::move(forward), std::move(vjp), std::move(jvp)});
}

Sample sample(std::string name, Attrs a, std::vector<SampleOperand> operands) {
  Sample s{std::move(name), std::move(a), std::move(operands)};
  allow_steps(s, 8, 8);
  return s;
}

const BodyFn kMix = [](Builder& b, const std::vector<Value>& v) {
  return std::vector{mix(b, v[0], v[1])};
};

// y = x w, s = sum of x: both derivatives written by hand, from the operands.
struct Product {
  GraphRef forward, vjp, jvp;
  explicit Product(const TensorType& x, const TensorType& n) {
    const TensorType s{x.dtype, {}};
    forward = make_body("forward", {x, x, n}, [](Builder& b, const auto& v) {
      return std::vector{mul(b, v[0], v[1]), sum(b, v[0], {0}), v[2]};
    });
    vjp = make_body("vjp", {x, x, n, x, s, n, x, s}, [&](Builder& b, const auto& v) {
      const Value dx = add(b, mul(b, v[6], v[1]), expand(b, v[7], x.shape));
      return std::vector{dx, mul(b, v[6], v[0])};
    });
    jvp = make_body("jvp", {x, x, n, x, s, n, x, x}, [](Builder& b, const auto& v) {
      return std::vector{add(b, mul(b, v[6], v[1]), mul(b, v[0], v[7])), sum(b, v[6], {0})};
    });
  }
};

// The derivative of a rounding that passes: no difference quotient shows it.
void add_straight_through(std::vector<Sample>& list) {
  const TensorType x{DType::kF64, {3}};
  const BodyFn step = [](Builder& b, const std::vector<Value>& v) {
    return std::vector{cast(b, less(b, zeros_like(b, v[0]), v[0]), DType::kF64)};
  };
  const BodyFn pass = [](Builder& b, const std::vector<Value>& v) {
    return std::vector{mul(b, v[2], 3)};
  };
  list.push_back(sample("straight_through",
                        attrs(make_body("forward", {x}, step), make_body("vjp", {x, x, x}, pass),
                              make_body("jvp", {x, x, x}, pass)),
                        {{DType::kF64, {3}, {}}}));
  list.back().grad = GradCheck::kConvention;
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  for (DType t : members(dtypes::kAny)) {
    const TensorType x{t, {3, 5}};
    list.push_back(sample(std::string(to_string(t)), attrs(make_body("forward", {x, x}, kMix)),
                          {{t, {3, 5}, {}}, {t, {3, 5}, {}}}));
  }
  for (const int64_t n : {0, 1, 7, 1031}) {
    const TensorType x{DType::kF64, {n}}, count{DType::kI32, {}};
    const Product p(x, count);
    const std::vector<SampleOperand> operands{
        {DType::kF64, {n}, {}}, {DType::kF64, {n}, {}}, {DType::kI32, {}, integers(0, 9)}};
    const auto add = [&](std::string_view name, Attrs a) {
      list.push_back(sample(fmt::format("{}_{}", name, n), std::move(a), operands));
      list.back().reduction = std::max<int64_t>(8, n);
      list.back().scale = 0;  // the sum's own
    };
    add("size", attrs(p.forward, p.vjp, p.jvp));
    add("reverse", attrs(p.forward, p.vjp));
    add("forward", attrs(p.forward, {}, p.jvp));
  }
  add_straight_through(list);
  list.push_back(sample("no_operands",
                        attrs(make_body("forward", {},
                                        [](Builder& b, const auto&) {
                                          return std::vector{iota(b, DType::kF32, {3}, 0)};
                                        })),
                        {}));
  return list;
}

std::vector<WrongCall> wrong_calls() {
  const TensorType x{DType::kF32, {3}}, n{DType::kI32, {}};
  const BodyFn nothing = [](Builder&, const std::vector<Value>&) { return std::vector<Value>(); };
  const BodyFn first = [](Builder&, const std::vector<Value>& v) { return std::vector{v[0]}; };
  const BodyFn scalar_sum = [](Builder& b, const std::vector<Value>& v) {
    return std::vector{sum(b, v[0], {0})};
  };
  const GraphRef forward = make_body("forward", {x}, first);
  return {
      {"missing", attrs(nullptr), {x}, "the forward graph is missing"},
      {"inputs", attrs(forward), {x, x}, "the forward graph takes 1 inputs, the operands make 2"},
      {"no_outputs",
       attrs(make_body("forward", {x}, nothing)),
       {x},
       "the forward graph has no outputs"},
      {"vjp_inputs",
       attrs(forward, make_body("vjp", {x}, first)),
       {x},
       "the vjp graph takes 1 inputs, the operands make 3"},
      {"vjp_outputs",
       attrs(forward, make_body("vjp", {x, x, x}, nothing)),
       {x},
       "the vjp graph has 0 outputs for 1 differentiable operands"},
      {"vjp_type",
       attrs(forward, make_body("vjp", {x, x, x}, scalar_sum)),
       {x},
       "output 0 of the vjp graph is f32[], it must be f32[3]"},
      {"jvp_type",
       attrs(forward, nullptr, make_body("jvp", {x, x, x}, scalar_sum)),
       {x},
       "output 0 of the jvp graph is f32[], it must be f32[3]"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(CustomFn) = {samples, wrong_calls};

}  // namespace rlx
