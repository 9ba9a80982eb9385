#include "rlx/ops/extent.h"

#include <limits>

#include "rlx/ops/build.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Extent);
RLX_USE_OP(FillTail);

namespace {

std::vector<TensorType> infer_extent(const InferContext& c) {
  expect_operands(c, 0);
  const Dim& size = c.as<ExtentAttrs>().size;
  if (size.is_static() && size.value() < 0) user_error("the size {} is negative", size.value());
  return {{DType::kI64, {}}};
}

std::vector<TensorType> infer_fill(const InferContext& c) {
  expect_operands(c, 2);
  expect_min_rank(c, 0, 1, "x");
  expect_dtype(c, 0, dtypes::kAny, "x");
  expect_dtype(c, 1, DType::kI64, "n");
  expect_rank(c, 1, 0, "n");
  const FillValue fill = c.as<FillTailAttrs>().fill;
  if (is_complex(c[0].dtype) && fill != FillValue::kZero && fill != FillValue::kOne) {
    user_error("complex numbers have no lowest or highest value");
  }
  return {c[0]};
}

std::vector<Value> expand_fill(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  const auto& a = attrs.as<FillTailAttrs>();
  const TensorType type = b.type(operands[0]);
  Shape row(std::vector<Dim>(size_t(type.shape.rank()), Dim(1)));
  row[a.axis] = type.shape[a.axis];
  const Value live = less(b, iota(b, DType::kI64, std::move(row), a.axis), operands[1]);
  return {where(b, live, operands[0], constant(b, fill_element(type.dtype, a.fill)))};
}

TailRule tail(const InferContext&, size_t, int64_t) { return TailRule::kIgnored; }

}  // namespace

RLX_DEFINE_OP(Extent) = {
    .name = "Extent",
    .fields = RLX_FIELDS(ExtentAttrs, size),
    .flags = kNoGradient,
    .doc =
        R"(The value of a size, for computing with positions and counts.
Operands: none. Result: i64 []. Where the size is bound when the plan is compiled it becomes a
constant; of a bounded size a run reads the extent of its inputs.
Errors: a negative size.
Derivative: zero.)",
    .infer = infer_extent,
    .jvp = jvp_zero,
    .vjp = vjp_zero,
};

RLX_DEFINE_OP(FillTail) = {
    .name = "FillTail",
    .fields = RLX_FIELDS(FillTailAttrs, axis, fill),
    .doc =
        R"(y[..., i, ...] = i < n ? x[..., i, ...] : fill along `axis`.
Operands: x, any dtype, rank at least 1; n, i64 []; all is filled where n <= 0, nothing where n is the
size or more. Attributes: axis (negative counts from the end); fill: Zero, One, Lowest (-infinity, the
least integer, false), Highest. Result: the type of x. In place only the filled part is written.
Errors: axis out of range, Lowest or Highest of complex numbers.
Derivative: that of the live part; zero in the rest and in n.)",
    .infer = infer_fill,
    .normalize = normalize_axis_of_first<FillTailAttrs>,
    .decompose = {.expand = expand_fill},
    .tail = tail,
};

Array fill_element(DType dtype, FillValue fill) {
  return visit_dtype(dtype, [&]<class T>() {
    using Limits = std::numeric_limits<T>;
    T value{};
    if constexpr (std::is_same_v<T, std::complex<float>> ||
                  std::is_same_v<T, std::complex<double>>) {
      if (fill == FillValue::kOne) value = T(1);
    } else {
      const bool low = fill == FillValue::kLowest;
      const auto one = T(1.0F);
      switch (fill) {
        case FillValue::kZero:
          break;
        case FillValue::kOne:
          value = one;
          break;
        case FillValue::kLowest:
        case FillValue::kHighest:
          if constexpr (std::is_integral_v<T>) {
            value = low ? Limits::min() : Limits::max();
          } else {
            value = T(low ? -std::numeric_limits<float>::infinity()
                          : std::numeric_limits<float>::infinity());
          }
          break;
      }
    }
    return Array::scalar(value);
  });
}

Value extent(Builder& b, const Dim& size) { return b.op(kExtentOp, ExtentAttrs{size}, {}); }

Value fill_tail(Builder& b, Value x, Value n, int64_t axis, FillValue fill) {
  return b.op(kFillTailOp, FillTailAttrs{axis, fill}, {x, n});
}

}  // namespace rlx
