#include "rlx/ops/qmatmul.h"

#include <algorithm>
#include <cmath>

#include "rlx/ops/activation.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(QMatMul);

namespace {

constexpr DType kI8 = DType::kI8, kI32 = DType::kI32, kF32 = DType::kF32;

Attrs normalize(const InferContext& c) {
  QMatMulAttrs a = c.as<QMatMulAttrs>();
  if (a.w_zero_points.empty()) a.w_zero_points = {0};
  return Attrs::of(c.attrs.table(), std::move(a));
}

void check_zero_point(int64_t z, std::string_view what) {
  if (z < -128 || z > 127) user_error("{} is {}, which is no i8", what, z);
}

void check_count(size_t count, const Dim& columns, std::string_view what) {
  if (count == 1 || columns.is(int64_t(count))) return;
  user_error("there are {} {}, expected one, or one for each of {} columns", count, what,
             columns.to_string());
}

std::vector<TensorType> infer(const InferContext& c) {
  expect_operands(c, 2, 3);
  expect_dtype(c, 0, kI8, "x");
  expect_dtype(c, 1, kI8, "w");
  expect_min_rank(c, 0, 1, "x");
  expect_rank(c, 1, 2, "w");
  const Shape &x = c[0].shape, &w = c[1].shape;
  const Dim& n = w[1];
  if (x[x.rank() - 1] != w[0]) {
    user_error("cannot multiply {} by {}: {} columns against {} rows", x.to_string(), w.to_string(),
               x[x.rank() - 1].to_string(), w[0].to_string());
  }
  if (c.operands.size() == 3) {
    expect_dtype(c, 2, kI32, "bias");
    if (c[2].shape != Shape({n})) {
      user_error("bias is {}, expected one for each of {} columns", c[2].to_string(),
                 n.to_string());
    }
  }
  const auto& a = c.as<QMatMulAttrs>();
  check_zero_point(a.x_zero_point, "x_zero_point");
  check_zero_point(a.out_zero_point, "out_zero_point");
  for (const int64_t z : a.w_zero_points) check_zero_point(z, "a zero point of w");
  for (const double m : a.multipliers) {
    if (!std::isfinite(float(m))) user_error("the multiplier {} is not finite in f32", m);
  }
  check_count(a.w_zero_points.size(), n, "zero points of w");
  check_count(a.multipliers.size(), n, "multipliers");
  Shape result = x;
  result[result.rank() - 1] = n;
  return {{kI8, std::move(result)}};
}

// One number for all columns, or a row of them.
template <class T, class From>
Value row_of_numbers(Builder& b, const std::vector<From>& list) {
  std::vector<T> values;
  values.reserve(list.size());
  for (const From v : list) values.push_back(T(v));
  Dims shape;
  if (values.size() != 1) shape = {int64_t(values.size())};
  return constant(b, Array::from<T>(std::span<const T>(values), std::move(shape)));
}

// Leading axes of x and w broadcast, and those of a bias [..., 1, N] too: batching needs it.
Value product(Builder& b, const QMatMulAttrs& a, Value x, Value w, Value bias) {
  const Value left = sub(b, cast(b, x, kI32), double(a.x_zero_point));
  const Value right = sub(b, cast(b, w, kI32), row_of_numbers<int32_t>(b, a.w_zero_points));
  Value sum = matmul(b, left, right);
  if (bias.valid()) sum = add(b, sum, bias);
  const Value scaled = mul(b, cast(b, sum, kF32), row_of_numbers<float>(b, a.multipliers));
  const Value shifted =
      add(b, activation(b, ActivationKind::kRound, scaled), double(a.out_zero_point));
  return cast(b, minimum(b, maximum(b, shifted, scalar(b, kF32, -128)), scalar(b, kF32, 127)), kI8);
}

std::vector<Value> expand_call(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  return {product(b, attrs.as<QMatMulAttrs>(), operands[0], operands[1],
                  operands.size() > 2 ? operands[2] : Value{})};
}

// Rows of x are one product. Batches of weights have none: integers are exact, so the
// decomposition gives the same.
std::vector<Value> batch(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                         const Dim&) {
  const auto& a = call.as<QMatMulAttrs>();
  const std::span<const Value> o = call.operands;
  const bool has_bias = o.size() > 2;
  if (!batched[1] && !(has_bias && batched[2])) return b.call(call.op, call.attrs, o);
  const int64_t x_rank = b.shape(o[0]).rank() - batched[0];
  const int64_t rank = std::max(x_rank, int64_t(2));
  // The batch axis in front, then axes of size 1 up to the rank of x.
  const auto aligned = [&](Value v, bool lead, int64_t from_right) {
    Shape shape = b.shape(v);
    while (shape.rank() - lead < from_right) shape.insert(lead, 1);
    while (lead && shape.rank() < rank + 1) shape.insert(1, 1);
    return reshape(b, v, std::move(shape));
  };
  const Value y = product(b, a, aligned(o[0], batched[0], 2), aligned(o[1], batched[1], 2),
                          has_bias ? aligned(o[2], batched[2], 2) : Value{});
  Shape shape = b.shape(y);
  if (x_rank == 1) shape.erase(shape.rank() - 2);
  return {reshape(b, y, std::move(shape))};
}

Cost cost(const CostContext& c) {
  const Shape& x = c.operands[0].shape;
  return {2.0 * double(x[x.rank() - 1].value()) * element_count(c.results[0]), io_bytes(c)};
}

}  // namespace

RLX_DEFINE_OP(QMatMul) = {
    .name = "QMatMul",
    .fields = RLX_FIELDS(QMatMulAttrs, x_zero_point, w_zero_points, out_zero_point, multipliers),
    .flags = kNoGradient,
    .doc =
        R"(Product of integer codes, as codes again: y[..., j] = clamp(round(f32(s) m_j) + out_zero_point,
-128, 127) with s = bias[j] + sum over k of (x[..., k] - x_zero_point) (w[k, j] - w_zero_point_j).
Operands: x [..., K] and w [K, N], i8; optionally bias [N], i32. Attributes: the zero points, from -128 to
127, those of w one or N (none: 0); multipliers m, one or N, finite in f32: the scale of x times that of
w_j over that of y.
The result [..., N] is i8.
Precision: s is exact modulo 2^32; it is rounded to f32 and multiplied in f32; halves round to even. An
infinite product saturates.
Errors: other dtypes, ranks or sizes; zero points out of range; multipliers that are not finite; a wrong
number of either.
Derivative: none, the codes are no numbers that change smoothly. Batching: rows of x are one product;
batches of weights are decomposed, with equal results.)",
    .infer = infer,
    .normalize = normalize,
    .decompose = {.expand = expand_call},
    .jvp = jvp_zero,
    .vjp = vjp_zero,
    .batching = batch,
    .cost = cost,
};

Value qmatmul(Builder& b, Value x, Value w, Value bias, QMatMulAttrs attrs) {
  if (!bias.valid()) return b.op(kQMatMulOp, std::move(attrs), {x, w});
  return b.op(kQMatMulOp, std::move(attrs), {x, w, bias});
}

}  // namespace rlx
