#include "rlx/ops/custom.h"

#include "rlx/ops/control_samples.h"
#include "rlx/testing/sample_operators.h"

namespace rlx {

RLX_USE_OP(Custom);

namespace {

// The attributes of a call of the operator.
Attrs call_attrs(const CustomDefinition& d, const std::vector<SampleOperand>& operands,
                 std::string attributes) {
  Graph g;
  Builder b(g);
  std::vector<Value> values;
  for (const TensorType& t : types_of(operands)) {
    values.push_back(input(b, fmt::format("x{}", values.size()), t.dtype, t.shape));
  }
  return b.node_of(custom(b, d, values, std::move(attributes))[0]).attrs;
}

Sample sample(std::string name, const CustomDefinition& d, std::vector<SampleOperand> operands,
              std::string attributes = {}) {
  Attrs attrs = call_attrs(d, operands, std::move(attributes));
  Sample s{std::move(name), std::move(attrs), std::move(operands)};
  for (const SampleOperand& o : s.operands) {
    if (!is_differentiable(o.dtype)) s.grad = GradCheck::kNo;
  }
  return s;
}

const std::string kAffine("\x02\x01", 2), kNegative("\xfd\x00", 2);

void add_affine(std::vector<Sample>& list) {
  const auto add = [&](std::string name, SampleOperand x, const std::string& attributes) {
    list.push_back(
        sample("affine_" + std::move(name), sample_affine(), {std::move(x)}, attributes));
    list.back().extra_ulps = 2;
    list.back().scale = 8;
  };
  for (DType t : members(dtypes::kAny)) {
    add(std::string(to_string(t)), {t, {3, 5}}, kAffine);
  }
  add("scalar", {DType::kF64, {}}, kAffine);
  add("empty", {DType::kF32, {3, 0}}, kAffine);
  add("one", {DType::kF32, {1}}, kNegative);
  add("chunks", {DType::kF32, {5, 1033}}, kNegative);
  add("special", {DType::kF32, {64}, special()}, kAffine);
  list.back().grad = GradCheck::kNo;
}

void add_others(std::vector<Sample>& list) {
  for (DType t : {DType::kF32, DType::kF64}) {
    for (int64_t n : {0, 1, 7, 1031}) {
      list.push_back(sample(fmt::format("scale_norm_{}_{}", to_string(t), n), sample_scale_norm(),
                            {{t, {n}}, {t, {}}}));
      list.back().reduction = n;
    }
  }
  const auto matches = [&](DType t, int64_t n) {
    list.push_back(sample(fmt::format("matches_{}_{}", to_string(t), n), sample_matches(),
                          {{t, {n}, integers(0, 9)}}));
    list.back().grad = GradCheck::kNo;
  };
  for (DType t : members(dtypes::kAny)) matches(t, 13);
  for (int64_t n : {0, 1, 1031}) matches(DType::kF32, n);
  for (DType t : members(dtypes::kAny)) {
    list.push_back(sample(fmt::format("ramp_{}", to_string(t)), sample_ramp(), {},
                          fmt::format("{} 5", to_string(t))));
    list.back().grad = GradCheck::kNo;
  }
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  add_affine(list);
  add_others(list);
  return list;
}

std::vector<WrongCall> wrong_calls() {
  const TensorType x{DType::kF32, {3}}, i{DType::kI64, {3}};
  const auto attrs = [&](const auto& change) {
    CustomAttrs a{.name = "op", .attributes = {}, .results = {x}, .vjp = nullptr, .jvp = nullptr};
    change(a);
    return Attrs::of(kCustomOp.fields, std::move(a));
  };
  const auto first = [](Builder&, const auto& v) { return std::vector{v[0]}; };
  const auto none = [](Builder&, const auto&) { return std::vector<Value>(); };
  return {
      {"no_name", attrs([](auto& a) { a.name.clear(); }), {x}, "the operator has no name"},
      {"no_results", attrs([](auto& a) { a.results.clear(); }), {x}, "'op' has no results"},
      {"negative",
       attrs([](auto& a) { a.results[0].shape = {-3}; }),
       {x},
       "'op' has a result with a negative size: f32[-3]"},
      {"overflow",
       attrs([](auto& a) {
         a.results[0].shape = {int64_t(1) << 40, int64_t(1) << 40};
       }),
       {x},
       "overflow"},
      {"contradiction",
       attrs([&](auto& a) {
         a.no_gradient = true;
         a.vjp = make_body("vjp", {x, x, x}, first);
       }),
       {x},
       "'op' has derivatives and says that they are zero (no_gradient)"},
      {"vjp_inputs",
       attrs([&](auto& a) {
         a.vjp = make_body("vjp", {x, x}, first);
       }),
       {x},
       "the vjp takes 2 inputs, the operands make 3"},
      {"vjp_input_type",
       attrs([&](auto& a) {
         a.vjp = make_body("vjp", {x, i, x}, first);
       }),
       {x},
       "input 1 of the vjp ('in1') is i64[3], its operand makes f32[3]"},
      {"vjp_outputs",
       attrs([&](auto& a) {
         a.vjp = make_body("vjp", {x, i, x, x}, none);
       }),
       {x, i},
       "the vjp has 0 outputs for 1 differentiable operands"},
      {"jvp_outputs",
       attrs([&](auto& a) {
         a.jvp = make_body("jvp", {x, x, x}, none);
       }),
       {x},
       "the jvp has 0 outputs for 1 differentiable results"},
      {"jvp_output_type",
       attrs([&](auto& a) {
         a.jvp = make_body("jvp", {x, i, x, x},
                           [](Builder&, const auto& v) { return std::vector{v[1]}; });
       }),
       {x, i},
       "output 0 of the jvp is i64[3], it must be f32[3]"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Custom) = {samples, wrong_calls};

}  // namespace rlx
