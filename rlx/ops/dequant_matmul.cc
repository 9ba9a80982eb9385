#include "rlx/ops/dequant_matmul.h"

#include <algorithm>

#include "rlx/ir/packed.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/quantize.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(DequantMatMul);

namespace {

constexpr DTypeSet kProducts = DTypeSet(DType::kF16) | DType::kBF16 | DType::kF32;

// The shape of x under a missing row axis, as MatMul has it.
Shape as_rows(Shape x) {
  if (x.rank() == 1) x.insert(0, 1);
  return x;
}

std::vector<TensorType> infer(const InferContext& c) {
  expect_operands(c, 2);
  expect_dtype(c, 0, kProducts, "x");
  expect_dtype(c, 1, dtypes::kPacked, "w");
  expect_min_rank(c, 0, 1, "x");
  expect_min_rank(c, 1, 2, "w");
  const Shape x = as_rows(c[0].shape), w = c[1].shape;
  if (x[x.rank() - 1] != w[w.rank() - 1]) {
    user_error("cannot multiply {} by the rows of {}: {} columns against {}",
               c[0].shape.to_string(), w.to_string(), x[x.rank() - 1].to_string(),
               w[w.rank() - 1].to_string());
  }
  Shape result = broadcast(x.slice(0, x.rank() - 2), w.slice(0, w.rank() - 2));
  if (c[0].shape.rank() > 1) result.push_back(x[x.rank() - 2]);
  result.push_back(w[w.rank() - 2]);
  return {{c[0].dtype, std::move(result)}};
}

Value dense_weight(Builder& b, Value w, DType dtype) { return dequantize(b, w, {.dtype = dtype}); }

std::vector<Value> expand_call(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  Value x = operands[0];
  const DType dtype = b.dtype(x);
  if (attrs.as<DequantMatMulAttrs>().activations == MatMulActivations::kInt8Block) {
    const Value blocks = quantize(b, x, {.dtype = DType::kQ8_0});
    x = dense_weight(b, blocks, dtype);
  }
  return {matmul(b, x, swap_last_axes(b, dense_weight(b, operands[1], dtype)))};
}

// The activations' rounding has no derivative of its own: gradients pass it as they are.
std::vector<Value> jvp(Builder& b, const RuleCall& call, std::span<const Value> t) {
  if (!t[0].valid()) return {Value{}};
  return {dequant_matmul(b, t[0], call.operands[1])};
}

std::vector<Value> vjp(Builder& b, const RuleCall& call, std::span<const Value> g) {
  const Value x = call.operands[0], w = call.operands[1];
  const Shape x_shape = b.shape(x);
  Value dy = g[0];
  if (x_shape.rank() == 1) dy = unsqueeze(b, dy, -2);
  // In f32, like the product itself.
  const Value wide = cast(b, dy, DType::kF32);
  const Value dx = matmul(b, wide, dense_weight(b, w, DType::kF32));
  const Value sum = unbroadcast(b, dx, as_rows(x_shape));
  return {cast(b, reshape(b, sum, x_shape), b.dtype(x)), Value{}};
}

// One call whatever is batched: leading axes broadcast as in MatMul.
std::vector<Value> batch(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                         const Dim&) {
  const Value x = call.operands[0], w = call.operands[1];
  const auto& attrs = call.as<DequantMatMulAttrs>();
  const int64_t x_rank = b.shape(x).rank() - batched[0], w_rank = b.shape(w).rank() - batched[1];
  if (!batched[1] && w_rank == 2) return {dequant_matmul(b, x, w, attrs)};
  const int64_t rank = std::max({x_rank, w_rank, int64_t(2)});
  const auto aligned = [&](Value v, bool lead) {
    Shape shape = b.shape(v);
    if (shape.rank() - lead == 1) shape.insert(lead, 1);
    while (lead && shape.rank() < rank + 1) shape.insert(1, 1);
    return reshape(b, v, std::move(shape));
  };
  const Value y = dequant_matmul(b, aligned(x, batched[0]), aligned(w, batched[1]), attrs);
  Shape shape = b.shape(y);
  if (x_rank == 1) shape.erase(shape.rank() - 2);
  return {reshape(b, y, std::move(shape))};
}

Cost cost(const CostContext& c) {
  const Shape& x = c.operands[0].shape;
  return {2.0 * double(x[x.rank() - 1].value()) * element_count(c.results[0]), io_bytes(c)};
}

TailRule tail(const InferContext& c, size_t operand, int64_t axis) {
  return operand == 0 && axis + 1 < c[0].shape.rank() ? TailRule::kIgnored : TailRule::kRefused;
}

}  // namespace

RLX_DEFINE_OP(DequantMatMul) = {
    .name = "DequantMatMul",
    .fields = RLX_FIELDS(DequantMatMulAttrs, scheme, activations),
    .flags = kPackedRows,
    .doc =
        R"(Product with a quantized weight: y[..., i, j] = sum over k of x[..., i, k] deq(w)[..., j, k],
x times the transpose of the matrix that w stands for, which is never made as a whole.
Operands: x [..., M, K] or [K] (f16, bf16, f32); w [..., N, K], packed, rank at least 2. Leading axes
broadcast as in MatMul. Attributes: scheme, the way w is stored: Packed, a packed dtype; activations:
Exact multiplies x itself; Int8Block multiplies what x becomes in blocks of q8_0 (Quantize, then
Dequantize), which machines with integer dot products do faster.
The result [..., M, N] has the dtype of x; K = 0 gives zeros.
Precision: deq(w) is exact in f32, products and sums are fused in f32, 16-bit floats are rounded once.
The order of the sum depends on K only.
Errors: other dtypes, different K, leading axes that do not broadcast.
Gradient: x gets dy deq(w), summed over broadcast axes, also under Int8Block; w gets none.)",
    .infer = infer,
    .decompose = {.expand = expand_call},
    .jvp = jvp,
    .vjp = vjp,
    .batching = batch,
    .cost = cost,
    .tail = tail,
};

Value dequant_matmul(Builder& b, Value x, Value w, DequantMatMulAttrs attrs) {
  return b.op(kDequantMatMulOp, attrs, {x, w});
}

Value dequant_matmul(Builder& b, Value x, Value w) { return dequant_matmul(b, x, w, {}); }

}  // namespace rlx
