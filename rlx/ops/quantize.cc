#include "rlx/ops/quantize.h"

#include <algorithm>
#include <cmath>

#include "rlx/ir/packed.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/dtype_sets.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Quantize);
RLX_USE_OP(Dequantize);

CodeRange code_range(DType t) {
  switch (t) {
    case DType::kI8:
      return {-128, 127};
    case DType::kU8:
      return {0, 255};
    case DType::kI16:
      return {-32768, 32767};
    default:
      user_error("{} holds no codes, expected one of: i8 u8 i16", to_string(t));
  }
}

namespace {

template <class S>
Attrs normalize(const InferContext& c) {
  if (c.operands.empty()) return c.attrs;
  S a = c.as<S>();
  if (a.axis) a.axis = normalize_axis(*a.axis, c[0].shape.rank());
  if (a.zero_points.empty()) a.zero_points.assign(a.scales.size(), 0);
  return Attrs::of(c.attrs.table(), std::move(a));
}

// `wide`: scales are used in f64, else in f32.
template <class S>
void check_scales(const S& a, const Shape& shape, DType codes, bool wide) {
  if (is_packed(codes)) {
    if (!a.scales.empty() || !a.zero_points.empty() || a.axis) {
      user_error("{} has its scales inside: scales, zero_points and axis must be left out",
                 to_string(codes));
    }
    return;
  }
  if (!a.axis && a.scales.size() != 1) {
    user_error("without an axis there is one scale, {} were given", a.scales.size());
  }
  if (a.axis && !shape[*a.axis].is(int64_t(a.scales.size()))) {
    user_error("axis {} of {} has the size {}, there are {} scales", *a.axis, shape.to_string(),
               shape[*a.axis].to_string(), a.scales.size());
  }
  if (a.zero_points.size() != a.scales.size()) {
    user_error("there are {} zero points for {} scales", a.zero_points.size(), a.scales.size());
  }
  for (const double s : a.scales) {
    const double used = wide ? s : double(float(s));
    if (!(used > 0) || !std::isfinite(used))
      user_error("the scale {} is not positive and finite", s);
  }
  const CodeRange range = code_range(codes);
  for (const int64_t z : a.zero_points) {
    if (z < range.low || z > range.high) {
      user_error("the zero point {} is no {}", z, to_string(codes));
    }
  }
}

std::vector<TensorType> infer_quantize(const InferContext& c) {
  expect_operands(c, 1);
  expect_dtype(c, 0, dtypes::kFloats, "x");
  const auto& a = c.as<QuantizeAttrs>();
  if (!dtypes::kQuantized.contains(a.dtype)) {
    user_error("dtype is {}, expected one of: {}", to_string(a.dtype),
               dtypes::kQuantized.to_string());
  }
  if (is_packed(a.dtype) && a.rounding != QuantizeRounding::kEven) {
    user_error("{} has a rounding of its own: rounding must be left out", to_string(a.dtype));
  }
  check_scales(a, c[0].shape, a.dtype, c[0].dtype == DType::kF64);
  return {{a.dtype, c[0].shape}};
}

std::vector<TensorType> infer_dequantize(const InferContext& c) {
  expect_operands(c, 1);
  expect_dtype(c, 0, dtypes::kQuantized, "q");
  const auto& a = c.as<DequantizeAttrs>();
  if (!is_float(a.dtype)) {
    user_error("dtype is {}, expected one of: {}", to_string(a.dtype), dtypes::kFloats.to_string());
  }
  check_scales(a, c[0].shape, c[0].dtype, a.dtype == DType::kF64);
  return {{a.dtype, c[0].shape}};
}

template <class S>
std::vector<Value> batch(Builder& b, const RuleCall& call, std::span<const uint8_t>, const Dim&) {
  S a = call.as<S>();
  if (a.axis) ++*a.axis;
  return {b.op(call.op, std::move(a), {call.operands[0]})};
}

Cost cost(const CostContext& c) { return {2 * element_count(c.results[0]), io_bytes(c)}; }

// Blocks lie on the last axis.
TailRule tail(const InferContext& c, size_t, int64_t axis) {
  return axis + 1 < c[0].shape.rank() ? TailRule::kIgnored : TailRule::kRefused;
}

}  // namespace

RLX_DEFINE_OP(Quantize) = {
    .name = "Quantize",
    .fields = RLX_FIELDS(QuantizeAttrs, dtype, axis, scales, zero_points, rounding),
    .flags = kNoGradient | kPackedRows,
    .doc =
        R"(Codes of numbers: q = clamp(round(x / s) + z, low, high) with low and high those of dtype; for
packed dtypes the blocks that rlx/base/packed_blocks.h describes.
Operands: x, any float. Attributes: dtype (i8, u8, i16 or packed); scales and zero_points, one, or with
`axis` (negative counts from the end) one for each index of it; zero_points left out are 0; rounding: Even
rounds halves to even, Away away from zero. Packed dtypes have scales of their own and take none of these.
The division is one of f32 (x and s rounded to f32 before; f64 stays f64). NaN counts as 0, infinities
saturate; in a packed block they make all of the block NaN. f64 is rounded to f32 before it is packed.
The result has the shape of x.
Errors: other dtypes; scales that are not positive and finite; zero points that dtype does not hold; a
wrong number of either; packed dtypes whose last axis is no whole number of blocks.
Derivative: none, the codes are no numbers that change smoothly (FakeQuantize passes gradients through).
Batching: the axis moves.)",
    .infer = infer_quantize,
    .normalize = normalize<QuantizeAttrs>,
    .jvp = jvp_zero,
    .vjp = vjp_zero,
    .batching = batch<QuantizeAttrs>,
    .cost = cost,
    .tail = tail,
};

RLX_DEFINE_OP(Dequantize) = {
    .name = "Dequantize",
    .fields = RLX_FIELDS(DequantizeAttrs, dtype, axis, scales, zero_points),
    .flags = kNoGradient | kPackedRows,
    .doc =
        R"(The numbers that codes stand for: x = (q - z) * s; for packed dtypes what
rlx/base/packed_blocks.h says.
Operands: q (i8, u8, i16 or packed). Attributes: dtype of the result, any float; axis, scales and
zero_points as in Quantize.
The product is one of f32 (f64 if dtype is f64), rounded once to dtype; packed dtypes decode exactly in f32.
The result has the shape of q.
Errors: as Quantize. Derivative: none. Batching: the axis moves.)",
    .infer = infer_dequantize,
    .normalize = normalize<DequantizeAttrs>,
    .jvp = jvp_zero,
    .vjp = vjp_zero,
    .batching = batch<DequantizeAttrs>,
    .cost = cost,
    .tail = tail,
};

Value quantize(Builder& b, Value x, QuantizeAttrs attrs) {
  return b.op(kQuantizeOp, std::move(attrs), {x});
}

Value dequantize(Builder& b, Value q, DequantizeAttrs attrs) {
  return b.op(kDequantizeOp, std::move(attrs), {q});
}

}  // namespace rlx
