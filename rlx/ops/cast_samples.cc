#include "rlx/ops/cast.h"
#include "rlx/ops/elementwise_samples.h"

namespace rlx {

RLX_USE_OP(Cast);

namespace {

Attrs attrs(DType to) { return Attrs::of(kCastOp.fields, CastAttrs{to}); }

Sample sample(std::string name, DType from, DType to, Dims shape, Draw draw, GradCheck grad) {
  Sample s{std::move(name), attrs(to), {{from, std::move(shape), std::move(draw)}}};
  s.grad = is_differentiable(from) && is_differentiable(to) ? grad : GradCheck::kNo;
  return s;
}

// Halves between neighbours of the narrower float types, and numbers just past the integers' ends.
const std::vector<double>& edge_values() {
  static const auto* values = new std::vector<double>{
      0.5,        -0.5,       1.5,         2.5,          -2.5,         1 + 0x1p-11,   1 + 0x3p-11,
      1 + 0x1p-8, 1 + 0x3p-8, 1 + 0x1p-24, 65519,        65520,        -65520,        0x1p-25,
      0x1.8p-25,  127,        128,         -128,         -129,         255,           256,
      -1,         32768,      65535.5,     2147483647.0, 2147483648.0, -2147483649.0, 4294967296.,
      0x1p53 + 2, 0x1p63,     -0x1p63,     0x1p64,       1e20,         3.4e38,        1e300,
      -1e300,     16777217,   -16777219,   33554435,
  };
  return *values;
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  for (DType from : members(dtypes::kAny)) {
    for (DType to : members(dtypes::kAny)) {
      const std::string name = fmt::format("{}_to_{}", to_string(from), to_string(to));
      // One sample a pair: its size past any vector, specials among plain numbers.
      Draw draw = special(-300, 300);
      if (is_complex(from)) draw = uniform(-9, 9);
      if (is_integer(from)) draw = special(-300, 300);
      list.push_back(sample(name, from, to, {173}, draw, GradCheck::kNo));
    }
  }
  const auto& edges = edge_values();
  for (DType from : {DType::kF32, DType::kF64, DType::kI64, DType::kU64}) {
    for (DType to : members(dtypes::kAny)) {
      list.push_back(sample(fmt::format("edges_{}_to_{}", to_string(from), to_string(to)), from, to,
                            {int64_t(edges.size())}, given(edges), GradCheck::kNo));
    }
  }
  for (DType from : members(dtypes::kFloatsComplexes)) {
    for (DType to : members(dtypes::kFloatsComplexes)) {
      list.push_back(sample(fmt::format("grad_{}_to_{}", to_string(from), to_string(to)), from, to,
                            {2, 3}, uniform(-2, 2), GradCheck::kYes));
    }
  }
  const DType f32 = DType::kF32, f16 = DType::kF16;
  list.push_back(sample("scalar", f32, f16, {}, uniform(-2, 2), GradCheck::kYes));
  list.push_back(sample("one", f32, f16, {1}, uniform(-2, 2), GradCheck::kYes));
  list.push_back(sample("empty", f32, f16, {3, 0}, uniform(-2, 2), GradCheck::kYes));
  list.push_back(sample("large_f32_to_f16", f32, f16, {4099}, uniform(-2, 2), GradCheck::kNo));
  list.push_back(sample("large_f16_to_f32", f16, f32, {4099}, uniform(-2, 2), GradCheck::kNo));
  list.push_back(sample("large_i64_to_i32", DType::kI64, DType::kI32, {4099}, integers(-9, 9),
                        GradCheck::kNo));
  return list;
}

std::vector<WrongCall> wrong_calls() {
  const TensorType f32{DType::kF32, {2}};
  return {
      {"no_operand", attrs(DType::kF16), {}, "expected 1 operand, got 0"},
      {"two_operands", attrs(DType::kF16), {f32, f32}, "expected 1 operand, got 2"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Cast) = {samples, wrong_calls};

}  // namespace rlx
