#include "rlx/ops/kv_append.h"

#include "rlx/base/error.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/dynamic_slice.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(KvAppend);

namespace {

std::vector<TensorType> infer(const InferContext& c) {
  expect_operands(c, 3);
  const int64_t axis = c.as<KvAppendAttrs>().axis;
  const Shape &cache = c[0].shape, &rows = c[1].shape, &pos = c[2].shape;
  expect_dtype(c, 0, dtypes::kAny, "cache");
  expect_same_dtype(c, 0, 1);
  expect_rank(c, 1, cache.rank(), "rows");
  for (int64_t a = 0; a < cache.rank(); ++a) {
    if (a == axis || rows[a] == cache[a]) continue;
    user_error("cache {} and rows {} differ on axis {}: they may differ on axis {} only",
               cache.to_string(), rows.to_string(), a, axis);
  }
  const Dim rest = cache[axis] - rows[axis];
  if (rest.is_static() && rest.value() < 0) {
    user_error("{} rows do not fit into a cache of capacity {}", rows[axis].to_string(),
               cache[axis].to_string());
  }
  expect_dtype(c, 2, DType::kI64, "pos");
  if (pos.rank() > axis || cache.slice(0, pos.rank()) != pos) {
    user_error("pos has the shape {}, expected [] or the leading axes of {} up to axis {}",
               pos.to_string(), cache.to_string(), axis);
  }
  return {c[0]};
}

// pos as the starts of a DynamicUpdateSlice.
Value starts_of(Builder& b, Value pos) { return unsqueeze(b, pos, -1); }

std::vector<Value> expand(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  const DynamicUpdateSliceAttrs a{{attrs.as<KvAppendAttrs>().axis}, b.shape(operands[2]).rank()};
  return {dynamic_update_slice(b, operands[0], operands[1], starts_of(b, operands[2]), a)};
}

Value append(Builder& b, const RuleCall& call, Value cache, Value rows) {
  return b.call1(call.op, call.attrs, {cache, rows, call.operands[2]});
}

std::vector<Value> jvp(Builder& b, const RuleCall& call, std::span<const Value> t) {
  if (!t[0].valid() && !t[1].valid()) return {Value{}};
  return {append(b, call, t[0].valid() ? t[0] : zeros_like(b, call.operands[0]),
                 t[1].valid() ? t[1] : zeros_like(b, call.operands[1]))};
}

std::vector<Value> vjp(Builder& b, const RuleCall& call, std::span<const Value> g) {
  const int64_t axis = call.as<KvAppendAttrs>().axis;
  const Value rows = call.operands[1], pos = call.operands[2];
  const DynamicSliceAttrs window{{axis}, {b.shape(rows)[axis]}, b.shape(pos).rank()};
  return {append(b, call, g[0], zeros_like(b, rows)),
          dynamic_slice(b, g[0], starts_of(b, pos), window), Value{}};
}

std::vector<Value> batch(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                         const Dim& size) {
  Value pos = call.operands[2];
  if (batched[2] || b.shape(pos).rank() > 0) pos = with_batch(b, pos, batched[2] != 0, size);
  return {b.op(call.op, KvAppendAttrs{call.as<KvAppendAttrs>().axis + 1},
               {with_batch(b, call.operands[0], batched[0] != 0, size),
                with_batch(b, call.operands[1], batched[1] != 0, size), pos})};
}

// In place: only the rows move.
Cost cost(const CostContext& c) {
  const TensorType& rows = c.operands[1];
  return {0, 2 * element_count(rows) * double(size_of(rows.dtype))};
}

}  // namespace

RLX_DEFINE_OP(KvAppend) = {
    .name = "KvAppend",
    .fields = RLX_FIELDS(KvAppendAttrs, axis),
    .doc =
        R"(Writes rows into a cache at a position that is known at run time; the result is the whole
cache: y = cache, but y[..., pos + i, ...] = rows[..., i, ...] on `axis`.
Operands: cache, any dtype, for instance [B, capacity, H, D]; rows, of its dtype and shape but for the
number of rows on `axis`; pos, i64, [] or the leading axes of cache, at most up to `axis`: [B] gives
every sequence of the batch a position of its own. Attributes: axis (negative counts from the end).
A cache that is not needed any more, above all a mutable param that the result updates, takes the rows
in its own memory: the cost does not depend on the capacity.
Rows that do not fit, 0 <= pos <= capacity - number of rows, are an error at run time that names
position, rows and capacity, and nothing is written.
Errors: other shapes or dtypes; more rows than the capacity.
Gradient: for cache the cotangent with zeros in place of the rows, for rows the cotangent there.
Compare: jax.lax.dynamic_update_slice_in_dim (which moves the rows back inside).)",
    .infer = infer,
    .normalize = normalize_axis_of_first<KvAppendAttrs>,
    .decompose = {.expand = expand},
    .jvp = jvp,
    .vjp = vjp,
    .batching = batch,
    .cost = cost,
};

Value kv_append(Builder& b, Value cache, Value rows, Value pos, int64_t axis) {
  return b.op(kKvAppendOp, KvAppendAttrs{axis}, {cache, rows, pos});
}

}  // namespace rlx
