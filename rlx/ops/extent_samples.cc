#include "rlx/ops/extent.h"

#include "rlx/ops/elementwise_samples.h"

namespace rlx {

RLX_USE_OP(Extent);
RLX_USE_OP(FillTail);

namespace {

Attrs extent_attrs(Dim size) { return Attrs::of(kExtentOp.fields, ExtentAttrs{std::move(size)}); }

std::vector<Sample> extent_samples() {
  std::vector<Sample> list;
  for (int64_t size : {0, 1, 7, 4099}) {
    Sample s{fmt::format("of_{}", size), extent_attrs(size), {}};
    s.grad = GradCheck::kNo;
    list.push_back(std::move(s));
  }
  return list;
}

std::vector<WrongCall> extent_wrong_calls() {
  return {
      {"operand", extent_attrs(3), {{DType::kI64, {}}}, "expected 0 operands, got 1"},
      {"negative", extent_attrs(-1), {}, "the size -1 is negative"},
  };
}

Attrs fill_attrs(int64_t axis, FillValue fill) {
  return Attrs::of(kFillTailOp.fields, FillTailAttrs{axis, fill});
}

Sample fill(std::string name, DType t, Dims shape, int64_t n, int64_t axis, FillValue value) {
  Sample s{std::move(name),
           fill_attrs(axis, value),
           {{t, std::move(shape), is_float(t) ? Draw{} : integers(0, 5)},
            {DType::kI64, {}, {Draw::kGiven, 0, 0, {double(n)}}}}};
  // Differences of infinities are no numbers.
  const bool finite = value == FillValue::kZero || value == FillValue::kOne;
  s.grad = finite ? grad_for(t) : GradCheck::kNo;
  return s;
}

std::vector<Sample> fill_samples() {
  std::vector<Sample> list;
  for (DType t : members(dtypes::kAny)) {
    for (size_t v = 0; v < kEnumCount<FillValue>; ++v) {
      const auto value = FillValue(v);
      if (is_complex(t) && v > 1) continue;
      list.push_back(
          fill(fmt::format("{}_{}", to_string(t), enum_name(value)), t, {3, 7}, 4, 1, value));
    }
  }
  const DType f32 = DType::kF32;
  list.push_back(fill("first_axis", f32, {5, 3}, 2, 0, FillValue::kZero));
  list.push_back(fill("middle", f32, {2, 5, 3}, 1, 1, FillValue::kOne));
  list.push_back(fill("from_the_end", f32, {2, 5, 3}, 2, -1, FillValue::kZero));
  list.push_back(fill("nothing", f32, {2, 5}, 5, 1, FillValue::kZero));
  list.push_back(fill("beyond", f32, {2, 5}, 99, 1, FillValue::kZero));
  list.push_back(fill("everything", f32, {2, 5}, 0, 1, FillValue::kLowest));
  list.push_back(fill("negative", f32, {2, 5}, -3, 1, FillValue::kZero));
  list.push_back(fill("one", f32, {1}, 1, 0, FillValue::kZero));
  list.push_back(fill("empty", f32, {0, 3}, 0, 0, FillValue::kZero));
  list.push_back(fill("empty_rows", f32, {3, 0}, 2, 0, FillValue::kZero));
  list.push_back(fill("large", f32, {17, 4099}, 1031, 1, FillValue::kZero));
  list.push_back(fill("large_rows", f32, {4099, 67}, 1031, 0, FillValue::kHighest));
  return list;
}

std::vector<WrongCall> fill_wrong_calls() {
  const TensorType x{DType::kF32, {2, 3}}, n{DType::kI64, {}};
  const Attrs zero = fill_attrs(0, FillValue::kZero);
  return {
      {"operands", zero, {x}, "expected 2 operands, got 1"},
      {"scalar", zero, {{DType::kF32, {}}, n}, "axis 0 is out of range for rank 0"},
      {"float_n", zero, {x, {DType::kF32, {}}}, "n is f32, expected one of: i64"},
      {"vector_n", zero, {x, {DType::kI64, {1}}}, "n"},
      {"axis", fill_attrs(2, FillValue::kZero), {x, n}, "axis 2 is out of range for rank 2"},
      {"complex",
       fill_attrs(0, FillValue::kLowest),
       {{DType::kC64, {2}}, n},
       "complex numbers have no lowest or highest value"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Extent) = {extent_samples, extent_wrong_calls};
RLX_DEFINE_SAMPLES(FillTail) = {fill_samples, fill_wrong_calls};

}  // namespace rlx
