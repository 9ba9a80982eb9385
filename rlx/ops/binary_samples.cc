#include "rlx/ops/binary.h"
#include "rlx/ops/elementwise_samples.h"

namespace rlx {

RLX_USE_OP(Binary);

namespace {

Attrs attrs(BinaryKind kind) { return Attrs::of(kBinaryOp.fields, BinaryAttrs{kind}); }

DTypeSet accepted(BinaryKind kind) {
  if (kind <= BinaryKind::kDiv) return dtypes::kNumbers;
  if (kind <= BinaryKind::kMod) return dtypes::kReals;
  if (kind <= BinaryKind::kBitXor) return dtypes::kInts | dtypes::kBools;
  if (kind <= BinaryKind::kShr) return dtypes::kInts;
  return dtypes::kFloats;
}

bool is_bitwise(BinaryKind kind) { return kind >= BinaryKind::kBitAnd && kind <= BinaryKind::kShr; }

// Allowed beyond the one rounding: Pow and Atan2 are approximations, complex products round twice.
double extra_ulps(BinaryKind kind, DType t) {
  if (kind == BinaryKind::kPow || kind == BinaryKind::kAtan2) return 4;
  return is_complex(t) ? 4 : 0;
}

struct Draws {
  Draw x, y;
};

// Values for which derivatives exist: no ties, no jumps, no poles.
Draws draws(BinaryKind kind, DType t) {
  if (t == DType::kBool) return {integers(0, 1), integers(0, 1)};
  if (is_integer(t)) {
    const double low = class_of(t) == DTypeClass::kSigned ? -9 : 0;
    if (kind == BinaryKind::kShl || kind == BinaryKind::kShr) {
      return {special(low * 9, 100), integers(low / 9, 70)};
    }
    return {integers(low * 9, 100), integers(low, 9)};
  }
  switch (kind) {
    case BinaryKind::kDiv:
      return {uniform(-2, 2), uniform(0.5, 2)};
    case BinaryKind::kPow:
      return {uniform(0.2, 2), uniform(-2, 2)};
    case BinaryKind::kMod:
      return {uniform(5.1, 5.7), uniform(2.0, 2.2)};
    case BinaryKind::kAtan2:
      return {uniform(0.2, 2), uniform(-2, 2)};
    default:
      return {uniform(-2, 2), uniform(-2, 2)};
  }
}

Sample sample(std::string name, BinaryKind kind, DType t, const SampleShapes& shapes) {
  const Draws d = draws(kind, t);
  Sample s{
      std::move(name), attrs(kind), {{t, shapes.operands[0], d.x}, {t, shapes.operands[1], d.y}}};
  s.grad = grad_for(t);
  s.extra_ulps = extra_ulps(kind, t);
  return s;
}

// Floats and integers alike: every pair of special values meets. Not for signs of zero alone.
Sample special_sample(BinaryKind kind, DType t) {
  Sample s{fmt::format("special_{}_{}", enum_name(kind), to_string(t)),
           attrs(kind),
           {{t, {23, 1}, special()}, {t, {23}, special()}}};
  s.grad = GradCheck::kNo;
  s.extra_ulps = extra_ulps(kind, t);
  return s;
}

Sample given_sample(std::string name, BinaryKind kind, DType t, std::vector<double> x,
                    std::vector<double> y, GradCheck grad) {
  const auto nx = int64_t(x.size()), ny = int64_t(y.size());
  Sample s{std::move(name),
           attrs(kind),
           {{t, {nx, 1}, given(std::move(x))}, {t, {ny}, given(std::move(y))}}};
  s.grad = grad;
  s.extra_ulps = extra_ulps(kind, t);
  return s;
}

void add_edges(std::vector<Sample>& list) {
  for (BinaryKind kind : {BinaryKind::kMax, BinaryKind::kMin}) {
    // A chosen derivative: halves.
    list.push_back(given_sample(fmt::format("ties_{}", enum_name(kind)), kind, DType::kF32,
                                {-1, 0, 2}, {2, 0, -1}, GradCheck::kConvention));
  }
  list.push_back(given_sample("pow_at_zero", BinaryKind::kPow, DType::kF32, {0, 1, 2}, {0, 1, 2, 3},
                              GradCheck::kConvention));
  list.push_back(given_sample("pow_of_negative", BinaryKind::kPow, DType::kF64,
                              {-2, -1, -0.5, -0.0}, {-3, -2, -1, -0.5, 0, 0.5, 2, 3},
                              GradCheck::kNo));
  for (DType t : members(dtypes::kInts)) {
    list.push_back(given_sample(fmt::format("negative_exponents_{}", to_string(t)),
                                BinaryKind::kPow, t, {-2, -1, 0, 1, 2}, {-3, -2, -1, 0, 1, 2, 63},
                                GradCheck::kNo));
    for (BinaryKind kind : {BinaryKind::kShl, BinaryKind::kShr}) {
      list.push_back(given_sample(fmt::format("widths_{}_{}", enum_name(kind), to_string(t)), kind,
                                  t, {-3, 1, 77, -1e30, 1e30},
                                  {-1, 0, 1, 7, 8, 15, 16, 31, 32, 63, 64, 1e30}, GradCheck::kNo));
    }
  }
  list.push_back(given_sample("mod_signs", BinaryKind::kMod, DType::kF32, {-5.5, 5.5, -0.0, 6},
                              {-2, 2, 3, 1e-30}, GradCheck::kNo));
  list.push_back(given_sample("mod_far", BinaryKind::kMod, DType::kF64, {1e300, -1e17, 1e16 + 2},
                              {3, 7.25, 1e-5}, GradCheck::kNo));
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  for (size_t k = 0; k < kEnumCount<BinaryKind>; ++k) {
    const auto kind = BinaryKind(k);
    for (DType t : members(accepted(kind))) {
      list.push_back(sample(fmt::format("{}_{}", enum_name(kind), to_string(t)), kind, t,
                            {"", {{3, 7}, {7}}}));
    }
    const bool bits = is_bitwise(kind);
    for (DType t : bits ? members(dtypes::kInts)
                        : std::vector<DType>{DType::kF16, DType::kF32, DType::kF64}) {
      list.push_back(special_sample(kind, t));
    }
    if (bits || kind == BinaryKind::kAtan2) continue;
    for (DType t : members(dtypes::kInts)) list.push_back(special_sample(kind, t));
  }
  for (const SampleShapes& shapes : binary_shapes()) {
    list.push_back(
        sample(fmt::format("shape_{}", shapes.name), BinaryKind::kSub, DType::kF32, shapes));
  }
  for (DType t : {DType::kBool, DType::kU8, DType::kI64}) {
    list.push_back(sample(fmt::format("large_row_{}", to_string(t)), BinaryKind::kBitXor, t,
                          {"", {{5, 1031}, {1031}}}));
  }
  for (DType t : {DType::kBF16, DType::kC64, DType::kF64, DType::kI32}) {
    list.push_back(sample(fmt::format("large_column_{}", to_string(t)), BinaryKind::kMul, t,
                          {"", {{5, 1031}, {5, 1}}}));
  }
  add_edges(list);
  return list;
}

std::vector<WrongCall> wrong_calls() {
  const TensorType f32{DType::kF32, {2}}, f64{DType::kF64, {2}}, i32{DType::kI32, {2}};
  const TensorType boolean{DType::kBool, {2}}, c64{DType::kC64, {2}};
  return {
      {"one_operand", attrs(BinaryKind::kAdd), {f32}, "expected 2 operands, got 1"},
      {"mixed_dtypes",
       attrs(BinaryKind::kAdd),
       {f32, f64},
       "operands 0 and 1 have the dtypes f32 and f64: cast one of them"},
      {"add_of_bool", attrs(BinaryKind::kAdd), {boolean, boolean}, "Add does not accept bool"},
      {"max_of_complex", attrs(BinaryKind::kMax), {c64, c64}, "Max does not accept c64"},
      {"bits_of_float", attrs(BinaryKind::kBitAnd), {f32, f32}, "BitAnd does not accept f32"},
      {"shift_of_bool", attrs(BinaryKind::kShl), {boolean, boolean}, "Shl does not accept bool"},
      {"angle_of_integer",
       attrs(BinaryKind::kAtan2),
       {i32, i32},
       "Atan2 does not accept i32, only: f16 bf16 f32 f64"},
      {"shapes",
       attrs(BinaryKind::kAdd),
       {f32, {DType::kF32, {3}}},
       "shapes [2] and [3] do not broadcast: 2 against 3 on axis 1 from the right"},
      {"symbol_with_size",
       attrs(BinaryKind::kAdd),
       {{DType::kF32, {Dim::symbol("n")}}, f32},
       "shapes [n] and [2] do not broadcast"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Binary) = {samples, wrong_calls};

}  // namespace rlx
