#include "rlx/ops/build.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Where);

namespace {

std::vector<TensorType> infer_where(const InferContext& c) {
  expect_operands(c, 3);
  expect_dtype(c, 0, dtypes::kBools, "the condition");
  expect_same_dtype(c, 1, 2);
  return {{c[1].dtype, broadcast(broadcast(c[0].shape, c[1].shape), c[2].shape)}};
}

std::vector<Value> jvp_where(Builder& b, const RuleCall& call, std::span<const Value> tangents) {
  Value x = tangents[1], y = tangents[2];
  if (!x.valid() && !y.valid()) return {Value{}};
  if (!x.valid()) x = zero_of(b, y);
  if (!y.valid()) y = zero_of(b, x);
  return {expand_to(b, where(b, call.operands[0], x, y), b.shape(call.results[0]))};
}

std::vector<Value> vjp_where(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  const Value g = cotangents[0], condition = call.operands[0];
  if (!is_differentiable(b.dtype(g))) return {Value{}, Value{}, Value{}};
  const Value zero = zero_of(b, g);
  return {Value{}, unbroadcast(b, where(b, condition, g, zero), b.shape(call.operands[1])),
          unbroadcast(b, where(b, condition, zero, g), b.shape(call.operands[2]))};
}

}  // namespace

RLX_DEFINE_OP(Where) = {
    .name = "Where",
    .fields = RLX_FIELDS(NoAttrs),
    .flags = kElementwise,
    .doc =
        R"(z = condition ? x : y element by element; the three shapes broadcast as in NumPy.
Operands: condition (bool), x and y of one dtype, any. Result: that dtype, the broadcast shape.
A selection: bits are copied, and what is not selected (NaN, infinity) has no influence.
Derivatives: the cotangent where the operand was selected, 0 elsewhere; none for the condition.
Errors: a condition that is not bool (compare it with 0), different dtypes of x and y, shapes that
do not broadcast.)",
    .infer = infer_where,
    .jvp = jvp_where,
    .vjp = vjp_where,
    .batching = batch_elementwise,
};

Value where(Builder& b, Value condition, Value x, Value y) {
  return b.op(kWhereOp, NoAttrs{}, {condition, x, y});
}

}  // namespace rlx
