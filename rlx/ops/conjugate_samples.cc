#include "rlx/ops/elementwise_samples.h"

namespace rlx {

RLX_USE_OP(Conjugate);
RLX_USE_OP(StopGradient);

namespace {

const std::vector<std::pair<std::string_view, Dims>> kShapes = {
    {"scalar", {}}, {"empty", {0}}, {"one", {1}}, {"prime", {7, 13}}, {"large", {4099}}};

std::vector<Sample> samples() {
  const Attrs none = Attrs::of(kConjugateOp.fields, NoAttrs{});
  std::vector<Sample> list;
  for (DType t : members(dtypes::kComplexes)) {
    for (const auto& [name, shape] : kShapes) {
      list.push_back(
          {fmt::format("{}_{}", name, to_string(t)), none, {{t, shape, uniform(-2, 2)}}});
    }
    Sample s{fmt::format("special_{}", to_string(t)), none, {{t, {61}, special()}}};
    s.grad = GradCheck::kNo;
    list.push_back(std::move(s));
  }
  return list;
}

std::vector<WrongCall> wrong_calls() {
  const Attrs none = Attrs::of(kConjugateOp.fields, NoAttrs{});
  return {
      {"no_operand", none, {}, "expected 1 operand, got 0"},
      {"real", none, {{DType::kF32, {2}}}, "x is f32, expected one of: c64 c128"},
  };
}

std::vector<Sample> stop_samples() {
  const Attrs none = Attrs::of(kStopGradientOp.fields, NoAttrs{});
  std::vector<Sample> list;
  for (DType t : members(dtypes::kAny)) {
    Sample s{fmt::format("of_{}", to_string(t)), none, {{t, {3, 7}, integers(0, 1)}}};
    s.grad = is_differentiable(t) ? GradCheck::kConvention : GradCheck::kNo;
    list.push_back(std::move(s));
  }
  for (const auto& [name, shape] : kShapes) {
    Sample s{std::string(name), none, {{DType::kF32, shape}}};
    s.grad = GradCheck::kConvention;
    list.push_back(std::move(s));
  }
  return list;
}

std::vector<WrongCall> stop_wrong_calls() {
  return {{"no_operand",
           Attrs::of(kStopGradientOp.fields, NoAttrs{}),
           {},
           "expected 1 operand, got 0"}};
}

}  // namespace

RLX_DEFINE_SAMPLES(Conjugate) = {samples, wrong_calls};
RLX_DEFINE_SAMPLES(StopGradient) = {stop_samples, stop_wrong_calls};

}  // namespace rlx
