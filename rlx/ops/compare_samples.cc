#include "rlx/ops/compare.h"
#include "rlx/ops/elementwise_samples.h"

namespace rlx {

RLX_USE_OP(Compare);

namespace {

Attrs attrs(CompareKind kind) { return Attrs::of(kCompareOp.fields, CompareAttrs{kind}); }

// Whole numbers, so that some are equal.
Draw draw(DType t) {
  if (t == DType::kBool) return integers(0, 1);
  return class_of(t) == DTypeClass::kUnsigned ? integers(0, 2) : integers(-1, 1);
}

Sample sample(std::string name, CompareKind kind, DType t, const SampleShapes& shapes) {
  Sample s{std::move(name),
           attrs(kind),
           {{t, shapes.operands[0], draw(t)}, {t, shapes.operands[1], draw(t)}}};
  s.grad = GradCheck::kNo;
  return s;
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  for (size_t k = 0; k < kEnumCount<CompareKind>; ++k) {
    const auto kind = CompareKind(k);
    const bool orders = kind != CompareKind::kEq && kind != CompareKind::kNe;
    for (DType t : members(orders ? dtypes::kReals | dtypes::kBools : dtypes::kAny)) {
      list.push_back(sample(fmt::format("{}_{}", enum_name(kind), to_string(t)), kind, t,
                            {"", {{3, 7}, {7}}}));
      if (is_complex(t) || t == DType::kBool) continue;
      Sample s{fmt::format("special_{}_{}", enum_name(kind), to_string(t)),
               attrs(kind),
               {{t, {23, 1}, special()}, {t, {23}, special()}}};
      s.grad = GradCheck::kNo;
      list.push_back(std::move(s));
    }
  }
  for (const SampleShapes& shapes : binary_shapes()) {
    list.push_back(
        sample(fmt::format("shape_{}", shapes.name), CompareKind::kLe, DType::kF32, shapes));
  }
  for (DType t : {DType::kBool, DType::kI8, DType::kU16, DType::kI64, DType::kF16, DType::kF64,
                  DType::kC64, DType::kC128}) {
    list.push_back(sample(fmt::format("large_{}", to_string(t)), CompareKind::kEq, t,
                          {"", {{3, 1031}, {3, 1}}}));
  }
  return list;
}

std::vector<WrongCall> wrong_calls() {
  const TensorType f32{DType::kF32, {2}}, i32{DType::kI32, {2}}, c64{DType::kC64, {2}};
  return {
      {"three_operands", attrs(CompareKind::kEq), {f32, f32, f32}, "expected 2 operands, got 3"},
      {"order_of_complex",
       attrs(CompareKind::kLt),
       {c64, c64},
       "Lt does not accept c64: complex numbers have no order"},
      {"mixed_dtypes",
       attrs(CompareKind::kEq),
       {f32, i32},
       "operands 0 and 1 have the dtypes f32 and i32"},
      {"shapes",
       attrs(CompareKind::kEq),
       {f32, {DType::kF32, {4, 3}}},
       "shapes [2] and [4, 3] do not broadcast"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Compare) = {samples, wrong_calls};

}  // namespace rlx
