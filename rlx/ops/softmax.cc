#include "rlx/ops/softmax.h"

#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/reduce.h"
#include "rlx/ops/rules.h"

namespace rlx {
namespace {

std::vector<TensorType> infer(const InferContext& c) {
  expect_operands(c, 1);
  expect_dtype(c, 0, dtypes::kFloats, "x");
  return {c[0]};
}

std::vector<Value> expand_softmax(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  const int64_t axis = attrs.as<SoftmaxAttrs>().axis;
  const Value x = operands[0];
  // The result does not depend on what is subtracted, so no derivative needs to pass here.
  const Value m = stop_gradient(b, reduce(b, ReduceKind::kMax, x, {axis}, true));
  const Value e = exp(b, sub(b, x, m));
  return {div(b, e, sum(b, e, {axis}, true))};
}

// y * (dy - sum(y * dy))
std::vector<Value> vjp(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  const int64_t axis = call.as<SoftmaxAttrs>().axis;
  const Value y = call.results[0], dy = cotangents[0];
  return {mul(b, y, sub(b, dy, sum(b, mul(b, y, dy), {axis}, true)))};
}

Cost cost(const CostContext& c) { return {5 * element_count(c.results[0]), io_bytes(c)}; }

TailRule tail(const InferContext& c, size_t, int64_t axis) {
  return axis == c.as<SoftmaxAttrs>().axis ? TailRule::kLowest : TailRule::kIgnored;
}

}  // namespace

RLX_DEFINE_OP(Softmax) = {
    .name = "Softmax",
    .fields = RLX_FIELDS(SoftmaxAttrs, axis),
    .doc = R"(Normalized exponentials along one axis: y = exp(x - m) / sum(exp(x - m)), m = max(x).

x has rank 1 at least and a float type; y has the type of x. axis may count from the end.
f16 and bf16 are computed in f32 and rounded once. A slice that holds NaN or +inf, or only -inf,
gives NaN everywhere; an empty axis gives an empty result.
Errors: axis out of range.
Derivative: y * (dy - sum(y * dy)).
Compare: torch.softmax, jax.nn.softmax, ONNX Softmax.)",
    .infer = infer,
    .normalize = normalize_axis_of_first<SoftmaxAttrs>,
    .decompose = {.expand = expand_softmax},
    .jvp = jvp_by_vjp,
    .vjp = vjp,
    .batching = batch_leading_axis,
    .cost = cost,
    .tail = tail,
};

Value softmax(Builder& b, Value x, int64_t axis) {
  return b.op(kSoftmaxOp, SoftmaxAttrs{axis}, {x});
}

}  // namespace rlx
