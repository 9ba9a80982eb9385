#include "rlx/ops/gather.h"

#include <vector>

#include "rlx/base/error.h"
#include "rlx/ir/packed.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Gather);
RLX_USE_OP(GatherBackward);

namespace {

// The shape of gathering from a table of shape `table`; checks the attributes.
Shape gathered_shape(const Shape& table, const Shape& indices, int64_t axis, int64_t batch_dims) {
  if (batch_dims < 0 || batch_dims > axis || batch_dims > indices.rank()) {
    user_error(
        "batch_dims {} must be at least 0 and at most the axis {} and the rank of indices {}",
        batch_dims, axis, indices.rank());
  }
  for (int64_t a = 0; a < batch_dims; ++a) {
    if (table[a] == indices[a]) continue;
    user_error("table {} and indices {} differ on the shared axis {}", table.to_string(),
               indices.to_string(), a);
  }
  Shape result = table.slice(0, axis);
  for (int64_t a = batch_dims; a < indices.rank(); ++a) result.push_back(indices[a]);
  for (int64_t a = axis + 1; a < table.rank(); ++a) result.push_back(table[a]);
  if (result.rank() > kMaxRank) {
    user_error("the result {} has {} axes, at most {} are possible", result.to_string(),
               result.rank(), kMaxRank);
  }
  return result;
}

std::vector<TensorType> infer_gather(const InferContext& c) {
  expect_operands(c, 2);
  expect_dtype(c, 1, dtypes::kIndices, "indices");
  const auto& a = c.as<GatherAttrs>();
  const DType dtype = a.dtype.value_or(c[0].dtype);
  if (!is_packed(c[0].dtype) && dtype != c[0].dtype) {
    user_error("the table is {}, only packed dtypes are gathered as another one, not as {}",
               to_string(c[0].dtype), to_string(dtype));
  }
  if (is_packed(c[0].dtype) && !is_float(dtype)) {
    user_error("dtype is {}, expected one of: {}", to_string(dtype), dtypes::kFloats.to_string());
  }
  if (is_packed(c[0].dtype) && a.axis + 1 == c[0].shape.rank()) {
    user_error("{} is gathered as whole rows: axis {} is the last", to_string(c[0].dtype), a.axis);
  }
  return {{dtype, gathered_shape(c[0].shape, c[1].shape, a.axis, a.batch_dims)}};
}

Attrs normalize_gather(const InferContext& c) {
  if (c.operands.empty()) return c.attrs;
  GatherAttrs a = c.as<GatherAttrs>();
  a.axis = normalize_axis(a.axis, c[0].shape.rank());
  if (is_packed(c[0].dtype) && !a.dtype) a.dtype = DType::kF32;
  if (!is_packed(c[0].dtype) && a.dtype == c[0].dtype) a.dtype.reset();
  return Attrs::of(c.attrs.table(), a);
}

Attrs normalize_gather_backward(const InferContext& c) {
  GatherBackwardAttrs a = c.as<GatherBackwardAttrs>();
  a.axis = normalize_axis(a.axis, a.shape.rank());
  return Attrs::of(c.attrs.table(), std::move(a));
}

std::vector<TensorType> infer_gather_backward(const InferContext& c) {
  expect_operands(c, 2);
  expect_dtype(c, 0, dtypes::kNumbers, "dy");
  expect_dtype(c, 1, dtypes::kIndices, "indices");
  const auto& a = c.as<GatherBackwardAttrs>();
  const Shape expected = gathered_shape(a.shape, c[1].shape, a.axis, a.batch_dims);
  if (c[0].shape != expected) {
    user_error("dy has the shape {}, but gathering {} from a table {} gives {}",
               c[0].shape.to_string(), c[1].shape.to_string(), a.shape.to_string(),
               expected.to_string());
  }
  return {{c[0].dtype, a.shape}};
}

Value gather_backward(Builder& b, Value dy, Value indices, GatherBackwardAttrs attrs) {
  return b.op(kGatherBackwardOp, std::move(attrs), {dy, indices});
}

Value call_gather(Builder& b, Value table, Value indices, GatherAttrs attrs) {
  return b.op(kGatherOp, attrs, {table, indices});
}

// Both are linear in their first operand.
std::vector<Value> jvp_gather(Builder& b, const RuleCall& call, std::span<const Value> t) {
  return {call_gather(b, t[0], call.operands[1], call.as<GatherAttrs>())};
}

std::vector<Value> vjp_gather(Builder& b, const RuleCall& call, std::span<const Value> g) {
  const auto& a = call.as<GatherAttrs>();
  if (is_packed(b.dtype(call.operands[0]))) return {Value{}, Value{}};
  return {
      gather_backward(b, g[0], call.operands[1], {a.axis, a.batch_dims, b.shape(call.operands[0])}),
      Value{}};
}

std::vector<Value> jvp_gather_backward(Builder& b, const RuleCall& call, std::span<const Value> t) {
  return {gather_backward(b, t[0], call.operands[1], call.as<GatherBackwardAttrs>())};
}

std::vector<Value> vjp_gather_backward(Builder& b, const RuleCall& call, std::span<const Value> g) {
  const auto& a = call.as<GatherBackwardAttrs>();
  return {call_gather(b, g[0], call.operands[1], {a.axis, a.batch_dims}), Value{}};
}

std::vector<Value> batch_gather(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                                const Dim& size) {
  GatherAttrs a = call.as<GatherAttrs>();
  const Value table = call.operands[0];
  Value indices = call.operands[1];
  if (!batched[0]) {
    // The batch axis of the indices comes behind the shared ones and lands at `axis`.
    indices = move_axis(b, indices, 0, a.batch_dims);
    return {move_axis(b, call_gather(b, table, indices, a), a.axis, 0)};
  }
  ++a.axis;
  if (!batched[1] && a.batch_dims == 0) return {call_gather(b, table, indices, a)};
  ++a.batch_dims;
  return {call_gather(b, table, with_batch(b, indices, batched[1], size), a)};
}

std::vector<Value> batch_gather_backward(Builder& b, const RuleCall& call,
                                         std::span<const uint8_t> batched, const Dim& size) {
  GatherBackwardAttrs a = call.as<GatherBackwardAttrs>();
  ++a.axis;
  a.shape.insert(0, size);
  if (!batched[1] && a.batch_dims == 0) {
    return {gather_backward(b, call.operands[0], call.operands[1], std::move(a))};
  }
  ++a.batch_dims;
  return {gather_backward(b, with_batch(b, call.operands[0], batched[0], size),
                          with_batch(b, call.operands[1], batched[1], size), std::move(a))};
}

double count_bytes(const TensorType& t) { return element_count(t) * double(size_of(t.dtype)); }

// Of the table, only what is picked is read.
Cost cost_gather(const CostContext& c) {
  const PackedBlock block = block_of(c.operands[0].dtype);
  const double picked = element_count(c.results[0]) * double(block.bytes) / double(block.elements);
  return {0, count_bytes(c.operands[1]) + count_bytes(c.results[0]) + picked};
}

Cost cost_gather_backward(const CostContext& c) {
  return {element_count(c.operands[0]), io_bytes(c) + 2 * count_bytes(c.operands[0])};
}

// Indices beyond the extent must be in range.
TailRule tail(const InferContext& c, size_t operand, int64_t axis) {
  const auto& a = c.as<GatherAttrs>();
  if (axis < a.batch_dims) return operand == 1 ? TailRule::kZero : TailRule::kIgnored;
  if (operand == 1) return TailRule::kZero;
  return axis == a.axis ? TailRule::kRefused : TailRule::kIgnored;
}

// Slices beyond the extent are added to slice 0 as zeros.
TailRule tail_backward(const InferContext& c, size_t operand, int64_t axis) {
  const auto& a = c.as<GatherBackwardAttrs>();
  if (operand == 1) return TailRule::kZero;
  const int64_t indices = c[1].shape.rank() - a.batch_dims;
  const bool of_indices = axis >= a.axis && axis < a.axis + indices;
  return of_indices || axis < a.batch_dims ? TailRule::kZero : TailRule::kIgnored;
}

}  // namespace

RLX_DEFINE_OP(Gather) = {
    .name = "Gather",
    .fields = RLX_FIELDS(GatherAttrs, axis, batch_dims, dtype),
    .flags = kPackedRows,
    .doc =
        R"(Picks slices of a table: y[b, o, k, t] = table[b, o, indices[b, k], t], where the axis
`axis` of the table stands between o and t, and b are batch_dims leading axes that both operands share.
Operands: table, any dtype, rank at least 1; indices, any integer dtype and rank. Attributes: axis
(negative counts from the end), batch_dims (0 <= batch_dims <= axis), dtype.
Of a packed table whole rows are picked (axis is not the last) and decoded: the result has the dtype
`dtype`, any float, f32 if it is left out. Other tables give their own dtype.
The result has the shape table[:axis] + indices[batch_dims:] + table[axis + 1:].
Index rule: -n <= i < n for an axis of size n; a negative i means i + n; anything else is an error at
run time that names the index and the size.
Errors: a scalar table; indices that are no integers; batch_dims out of range or shared axes of
different sizes.
Gradient: GatherBackward for the table, none for a packed one; none for the indices.)",
    .infer = infer_gather,
    .normalize = normalize_gather,
    .jvp = jvp_gather,
    .vjp = vjp_gather,
    .batching = batch_gather,
    .cost = cost_gather,
    .tail = tail,
};

RLX_DEFINE_OP(GatherBackward) = {
    .name = "GatherBackward",
    .fields = RLX_FIELDS(GatherBackwardAttrs, axis, batch_dims, shape),
    .doc =
        R"(Adds slices into a table of zeros: out[b, o, indices[b, k], t] += dy[b, o, k, t] for all
b, o, k, t; the gradient of Gather for its table.
Operands: dy (all numbers), of the shape that Gather gives; indices, any integer dtype. Attributes: axis
(negative counts from the end) and batch_dims as in Gather; shape, that of the table and the result.
Equal indices add up in ascending order of k; 16-bit floats add in f32 and are rounded once, integers
wrap. Index rule as in Gather.
Errors: dy of another shape; the errors of Gather.
Gradient: Gather for dy; none for the indices.)",
    .infer = infer_gather_backward,
    .normalize = normalize_gather_backward,
    .jvp = jvp_gather_backward,
    .vjp = vjp_gather_backward,
    .batching = batch_gather_backward,
    .cost = cost_gather_backward,
    .tail = tail_backward,
};

Value gather(Builder& b, Value table, Value indices, int64_t axis) {
  return call_gather(b, table, indices, {axis, 0});
}

}  // namespace rlx
