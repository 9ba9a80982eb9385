#include "rlx/ops/elementwise_region.h"

#include "rlx/ops/activation.h"
#include "rlx/ops/binary.h"
#include "rlx/ops/build.h"
#include "rlx/ops/compare.h"
#include "rlx/ops/elementwise_samples.h"

namespace rlx {

RLX_USE_OP(ElementwiseRegion);

namespace {

using Values = std::vector<Value>;
using Body = Values (*)(Builder&, const Values&);

Attrs attrs(std::initializer_list<DType> inputs, Body make, bool strict = false) {
  auto g = std::make_shared<Graph>("body");
  Builder b(*g);
  Values in;
  for (DType t : inputs) in.push_back(input(b, fmt::format("in{}", in.size()), t, {}));
  const Values out = make(b, in);
  for (size_t i = 0; i < out.size(); ++i) g->add_output(fmt::format("out{}", i), out[i]);
  return Attrs::of(kElementwiseRegionOp.fields, ElementwiseRegionAttrs{std::move(g), strict});
}

Sample sample(std::string name, Attrs a, std::vector<SampleOperand> operands) {
  Sample s{std::move(name), std::move(a), std::move(operands)};
  s.extra_ulps = 16;  // of functions in the middle of a chain
  s.scale = 4;        // of terms that cancel
  s.reduction = 3;
  for (const SampleOperand& o : s.operands) {
    if (!is_differentiable(o.dtype)) s.grad = GradCheck::kNo;
  }
  return s;
}

Values scale_shift(Builder& b, const Values& x) { return {add(b, mul(b, x[0], x[1]), x[2])}; }
Values silu_times(Builder& b, const Values& x) {
  return {mul(b, activation(b, ActivationKind::kSilu, x[0]), x[1])};
}
Values gelu_bias(Builder& b, const Values& x) {
  return {activation(b, ActivationKind::kGelu, add(b, x[0], x[1]))};
}
// The new momentum and the new weight.
Values momentum(Builder& b, const Values& x) {
  const Value m = add(b, mul(b, x[1], 0.875), x[2]);
  return {sub(b, x[0], mul(b, m, 0.125)), m};
}
Values selection(Builder& b, const Values& x) {
  const Value cond = less(b, x[0], x[1]);
  return {where(b, cond, mul(b, x[0], 2), x[1]), cond};
}
Values of_everything(Builder& b, const Values& x) {
  const Value y = fma(b, x[0], x[1], maximum(b, x[0], x[1]));
  const Value z = div(b, activation(b, ActivationKind::kAbs, y), add(b, mul(b, y, y), 1));
  return {sub(b, tanh(b, z), minimum(b, x[1], stop_gradient(b, x[0])))};
}
// More values alive than a machine has registers.
Values wide_tree(Builder& b, const Values& x) {
  Values level;
  for (int i = 0; i < 16; ++i) level.push_back(mul(b, x[size_t(i % 2)], 0.25 + i / 16.0));
  while (level.size() > 1) {
    Values next;
    for (size_t i = 0; i < level.size(); i += 2) next.push_back(mul(b, level[i], level[i + 1]));
    level = next;
    if (level.size() > 4) continue;
    for (Value& v : level) v = add(b, v, 1);
  }
  return level;
}
Values backward(Builder& b, const Values& x) {
  const Value g = activation_backward(b, ActivationKind::kTanh, x[0], x[1]);
  return {activation_backward(b, ActivationKind::kGelu, x[1], g), g};
}
Values pass_through(Builder& b, const Values& x) {
  return {x[0], x[1], scalar(b, b.dtype(x[0]), 3)};
}
Values integers_of(Builder& b, const Values& x) {
  const Value q = div(b, x[0], x[1]);
  const Value r = sub(b, x[0], mul(b, q, x[1]));
  return {where(b, less(b, r, q), r, maximum(b, q, x[1])), q};
}
Values logic(Builder& b, const Values& x) {
  const Value both = binary(b, BinaryKind::kBitAnd, x[0], x[1]);
  return {binary(b, BinaryKind::kBitXor, both, equal(b, x[0], x[1]))};
}
Values complex_of(Builder& b, const Values& x) {
  return {add(b, mul(b, x[0], conjugate(b, x[1])), x[0])};
}
Values casts(Builder& b, const Values& x) {
  const Value wide = cast(b, x[0], DType::kF64);
  const Value single = cast(b, x[0], DType::kF32);
  const Value half = cast(b, cast(b, mul(b, single, 1.5), DType::kBF16), DType::kF32);
  const Value count = cast(b, cast(b, x[1], DType::kF32), DType::kI32);
  return {cast(b, add(b, wide, 0.5), DType::kF32), add(b, half, single), count};
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  const DType f32 = DType::kF32, i32 = DType::kI32;
  for (DType t : members(dtypes::kFloats)) {
    const std::string name(to_string(t));
    const auto three = [&](Dims a, Dims b, Dims c) {
      return std::vector<SampleOperand>{{t, std::move(a)}, {t, std::move(b)}, {t, std::move(c)}};
    };
    const Attrs scaled = attrs({t, t, t}, scale_shift);
    list.push_back(sample("scale_" + name, scaled, three({5, 13}, {13}, {5, 1})));
    list.push_back(sample("large_" + name, scaled, three({4099}, {}, {4099})));
    list.push_back(sample("strict_" + name, attrs({t, t, t}, scale_shift, true),
                          three({7, 11}, {7, 1}, {11})));
    list.push_back(sample("silu_" + name, attrs({t, t}, silu_times), {{t, {3, 67}}, {t, {3, 67}}}));
    list.push_back(sample("gelu_" + name, attrs({t, t}, gelu_bias), {{t, {9, 31}}, {t, {31}}}));
    list.push_back(
        sample("momentum_" + name, attrs({t, t, t}, momentum), three({6, 43}, {6, 43}, {6, 43})));
    Sample all = sample("all_" + name, attrs({t, t}, of_everything),
                        {{t, {257}, distinct(-2, -0.25)}, {t, {257}, distinct(0.25, 2)}});
    all.grad = GradCheck::kConvention;  // StopGradient
    list.push_back(std::move(all));
    list.push_back(
        sample("tree_" + name, attrs({t, t}, wide_tree, true), {{t, {3, 50}}, {t, {3, 50}}}));
    list.push_back(sample("backward_" + name, attrs({t, t}, backward), {{t, {40}}, {t, {40}}}));
    Sample chosen = sample("select_" + name, attrs({t, t}, selection),
                           {{t, {130}, integers(-3, 3)}, {t, {1}, integers(-3, 3)}});
    chosen.grad = GradCheck::kNo;  // ties
    list.push_back(std::move(chosen));
  }
  for (DType t : members(dtypes::kInts)) {
    const std::string name(to_string(t));
    list.push_back(sample("integers_" + name, attrs({t, t}, integers_of),
                          {{t, {5, 13}, integers(0, 100)}, {t, {13}, integers(1, 9)}}));
  }
  for (DType t : members(dtypes::kComplexes)) {
    const std::string name(to_string(t));
    list.push_back(sample("complex_" + name, attrs({t, t}, complex_of), {{t, {2, 9}}, {t, {9}}}));
  }
  const DType b = DType::kBool;
  list.push_back(sample("logic", attrs({b, b}, logic),
                        {{b, {33}, integers(0, 1)}, {b, {33}, integers(0, 1)}}));
  list.push_back(sample("casts", attrs({DType::kF16, i32}, casts),
                        {{DType::kF16, {3, 29}}, {i32, {3, 1}, integers(-90, 90)}}));
  list.push_back(
      sample("pass_through", attrs({f32, f32}, pass_through), {{f32, {4, 1}}, {f32, {1, 9}}}));
  const auto shapes = [&](std::string name, Dims x, Dims y, Dims z) {
    list.push_back(sample(std::move(name), attrs({f32, f32, f32}, scale_shift),
                          {{f32, std::move(x)}, {f32, std::move(y)}, {f32, std::move(z)}}));
  };
  shapes("scalars", {}, {}, {});
  shapes("empty", {0, 3}, {3}, {1});
  shapes("middle", {3, 1, 7}, {3, 5, 7}, {1, 5, 1});
  shapes("all_different", {2, 1, 1}, {1, 3, 1}, {1, 1, 4});
  shapes("long_rows", {3, 1}, {3, 1031}, {1031});
  shapes("narrow_rows", {257, 3}, {257, 1}, {3});
  shapes("rows_of_blocks", {5, 1}, {5, 256}, {256});
  return list;
}

Attrs no_body() { return Attrs::of(kElementwiseRegionOp.fields, ElementwiseRegionAttrs{}); }

std::vector<WrongCall> wrong_calls() {
  const TensorType f32{DType::kF32, {2}}, f64{DType::kF64, {2}};
  const Attrs silu = attrs({DType::kF32, DType::kF32}, silu_times);
  const auto sums = [](Builder& b, const Values& x) -> Values {
    return {sum(b, reshape(b, x[0], {1}), {0})};
  };
  const auto long_constant = [](Builder& b, const Values& x) -> Values {
    return {add(b, x[0], constant(b, Array::from<float>({1, 2}, {2})))};
  };
  const auto nothing = [](Builder&, const Values&) -> Values { return {}; };
  const auto params = [](Builder& b, const Values&) -> Values {
    return {param(b, "w", DType::kF32, {})};
  };
  return {
      {"no_body", no_body(), {f32}, "the body is missing"},
      {"one_operand", silu, {f32}, "expected 2 operands, got 1"},
      {"dtype", silu, {f32, f64}, "operand 1 is f64, input 1 of the body is f32"},
      {"shapes", silu, {f32, {DType::kF32, {3}}}, "shapes [2] and [3] do not broadcast"},
      {"sum", attrs({DType::kF32}, sums), {f32}, "cannot stand in the body"},
      {"constant", attrs({DType::kF32}, long_constant), {f32}, "only one element repeats"},
      {"no_outputs", attrs({DType::kF32}, nothing), {f32}, "the body has no outputs"},
      {"params", attrs({DType::kF32}, params), {f32}, "the body has params or updates"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(ElementwiseRegion) = {samples, wrong_calls};

}  // namespace rlx
