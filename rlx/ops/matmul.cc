#include <algorithm>
#include <vector>

#include "rlx/base/error.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(MatMul);

namespace {

// The shape as a matrix: a vector becomes a row (on the left) or a column (on the right).
Shape as_matrix(Shape shape, bool left) {
  if (shape.rank() == 1) shape.insert(left ? 0 : 1, 1);
  return shape;
}

std::vector<TensorType> infer_matmul(const InferContext& c) {
  expect_operands(c, 2);
  expect_dtype(c, 0, dtypes::kNumbers, "the left operand");
  expect_same_dtype(c, 0, 1);
  expect_min_rank(c, 0, 1, "the left operand");
  expect_min_rank(c, 1, 1, "the right operand");
  const Shape x = as_matrix(c[0].shape, true), y = as_matrix(c[1].shape, false);
  if (x[x.rank() - 1] != y[y.rank() - 2]) {
    user_error("cannot multiply {} by {}: {} columns against {} rows", c[0].shape.to_string(),
               c[1].shape.to_string(), x[x.rank() - 1].to_string(), y[y.rank() - 2].to_string());
  }
  Shape result = broadcast(x.slice(0, x.rank() - 2), y.slice(0, y.rank() - 2));
  if (c[0].shape.rank() > 1) result.push_back(x[x.rank() - 2]);
  if (c[1].shape.rank() > 1) result.push_back(y[y.rank() - 1]);
  return {{c[0].dtype, std::move(result)}};
}

// [a, b, c, ...] with axes [begin, end) joined into one.
Value flatten(Builder& b, Value x, int64_t begin, int64_t end) {
  const Shape& from = b.shape(x);
  Shape to = from.slice(0, begin);
  to.push_back(from.slice(begin, end).num_elements());
  for (int64_t a = end; a < from.rank(); ++a) to.push_back(from[a]);
  return reshape(b, x, std::move(to));
}

// Gradient of the left operand: g y^H, summed over the batch axes that x lacks.
Value left_gradient(Builder& b, Value x, Value y, Value g) {
  const int64_t rank = b.shape(g).rank();
  if (b.shape(x).rank() == 2 && b.shape(y).rank() == rank && rank > 2) {
    // One matrix met a whole batch: one product over (batch, columns) instead of a sum of products.
    const Value rows = flatten(b, move_axis(b, g, -2, 0), 1, rank);     // [M, batch * N]
    const Value columns = flatten(b, move_axis(b, y, -2, 0), 1, rank);  // [K, batch * N]
    return matmul(b, rows, conjugate(b, swap_last_axes(b, columns)));
  }
  return unbroadcast(b, matmul(b, g, conjugate(b, swap_last_axes(b, y))), b.shape(x));
}

Value right_gradient(Builder& b, Value x, Value y, Value g) {
  const int64_t rank = b.shape(g).rank();
  if (b.shape(y).rank() == 2 && b.shape(x).rank() == rank && rank > 2) {
    // The weight of a layer: one product over (batch, rows).
    const Value rows = flatten(b, x, 0, rank - 1);  // [batch * M, K]
    return matmul(b, conjugate(b, swap_last_axes(b, rows)), flatten(b, g, 0, rank - 1));
  }
  return unbroadcast(b, matmul(b, conjugate(b, swap_last_axes(b, x)), g), b.shape(y));
}

std::vector<Value> vjp_matmul(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  const Shape x_shape = b.shape(call.operands[0]), y_shape = b.shape(call.operands[1]);
  const Value x = reshape(b, call.operands[0], as_matrix(x_shape, true));
  const Value y = reshape(b, call.operands[1], as_matrix(y_shape, false));
  Shape g_shape = b.shape(cotangents[0]);
  if (x_shape.rank() == 1) g_shape.insert(g_shape.rank() - (y_shape.rank() > 1), 1);
  if (y_shape.rank() == 1) g_shape.push_back(1);
  const Value g = reshape(b, cotangents[0], std::move(g_shape));
  return {reshape(b, left_gradient(b, x, y, g), x_shape),
          reshape(b, right_gradient(b, x, y, g), y_shape)};
}

// One MatMul whatever is batched. Vectors that meet a matrix become its rows: one product of
// matrices instead of many with vectors.
std::vector<Value> batch_matmul(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                                const Dim&) {
  const Value x = call.operands[0], y = call.operands[1];
  const int64_t x_rank = b.shape(x).rank() - batched[0], y_rank = b.shape(y).rank() - batched[1];
  if (batched[0] && !batched[1] && x_rank <= 2 && y_rank <= 2) return {matmul(b, x, y)};
  if (batched[1] && !batched[0] && y_rank == 1 && x_rank <= 2) {
    return {matmul(b, y, x_rank == 1 ? x : swap_last_axes(b, x))};
  }
  // As matrices, with batch axes padded up to the larger rank behind the new one.
  const int64_t rank = std::max({x_rank, y_rank, int64_t(2)});
  const auto prepare = [&](Value v, bool left) {
    Shape shape = b.shape(v);
    const int64_t lead = batched[left ? 0 : 1];
    if (shape.rank() - lead == 1) shape.insert(left ? lead : lead + 1, 1);
    while (lead && shape.rank() < rank + 1) shape.insert(1, 1);
    return reshape(b, v, std::move(shape));
  };
  const Value product = matmul(b, prepare(x, true), prepare(y, false));
  Shape shape = b.shape(product);
  if (y_rank == 1) shape.erase(shape.rank() - 1);
  if (x_rank == 1) shape.erase(shape.rank() - 1 - (y_rank > 1));
  return {reshape(b, product, std::move(shape))};
}

Cost cost_matmul(const CostContext& c) {
  const Shape& x = c.operands[0].shape;
  const double per_element =
      (is_complex(c.operands[0].dtype) ? 8.0 : 2.0) * double(x[x.rank() - 1].value());
  return {per_element * element_count(c.results[0]), io_bytes(c)};
}

TailRule tail(const InferContext& c, size_t operand, int64_t axis) {
  const int64_t rank = c[operand].shape.rank();
  const int64_t summed = operand == 0 || rank == 1 ? rank - 1 : rank - 2;
  return axis == summed ? TailRule::kZero : TailRule::kIgnored;
}

}  // namespace

RLX_DEFINE_OP(MatMul) = {
    .name = "MatMul",
    .fields = RLX_FIELDS(NoAttrs),
    .doc =
        R"(Matrix product: y[..., i, j] = sum over k of a[..., i, k] b[..., k, j].
Operands: a [..., M, K] and b [..., K, N] of one dtype (all numbers). Leading axes broadcast as in
NumPy. A vector on the left counts as [1, K], on the right as [K, 1], and the added axis is removed.
The result [..., M, N] has the dtype of the operands; K = 0 gives zeros.
Precision: f32 and f64 by fused multiply-adds over ascending k; 16-bit floats are multiplied and summed
in f32 and rounded once; integers are summed in 64 bits and wrap; complex numbers are not conjugated.
Errors: a scalar operand; different dtypes; unequal inner sizes; leading axes that do not broadcast.
Gradient: a gets g b^H, b gets a^H g (H: swap the last axes and conjugate), summed over broadcast axes.)",
    .infer = infer_matmul,
    .jvp = jvp_multilinear,
    .vjp = vjp_matmul,
    .batching = batch_matmul,
    .cost = cost_matmul,
    .tail = tail,
};

Value matmul(Builder& b, Value x, Value y) { return b.op(kMatMulOp, NoAttrs{}, {x, y}); }

}  // namespace rlx
