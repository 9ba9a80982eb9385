#include "rlx/ops/softmax_cross_entropy.h"

#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/reduce.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(SoftmaxCrossEntropyWithLogits);
RLX_USE_OP(SoftmaxCrossEntropyBackward);

namespace {

// Checks logits [..., C] and labels [...]; the type of one loss per row.
TensorType check_rows(const InferContext& c) {
  expect_dtype(c, 0, dtypes::kFloats, "logits");
  expect_min_rank(c, 0, 1, "logits");
  expect_dtype(c, 1, dtypes::kInts, "labels");
  const Shape rows = c[0].shape.slice(0, c[0].shape.rank() - 1);
  if (c[1].shape != rows) {
    user_error("labels must have the shape {} (logits without the last axis), they are {}",
               rows.to_string(), c[1].to_string());
  }
  return {c[0].dtype, rows};
}

std::vector<TensorType> infer_forward(const InferContext& c) {
  expect_operands(c, 2);
  return {check_rows(c)};
}

std::vector<TensorType> infer_backward(const InferContext& c) {
  expect_operands(c, 3);
  const TensorType loss = check_rows(c);
  if (c[2] != loss) {
    user_error("d_loss must be {}, it is {}", loss.to_string(), c[2].to_string());
  }
  return {c[0]};
}

// Whether each class of [..., C] is the label of its row.
Value is_label(Builder& b, Value logits, Value labels) {
  const Dim classes = b.shape(logits)[b.shape(logits).rank() - 1];
  const Value column = unsqueeze(b, cast(b, labels, DType::kI64), b.shape(labels).rank());
  return equal(b, iota(b, DType::kI64, Shape{classes}, 0), column);
}

// [...]: whether the label of each row is ignore_index.
Value is_ignored(Builder& b, Value labels, int64_t ignore_index) {
  const Value wide = cast(b, labels, DType::kI64);
  return equal(b, wide, constant(b, Array::scalar<int64_t>(ignore_index)));
}

std::vector<Value> expand_forward(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  const Value logits = operands[0], labels = operands[1];
  const int64_t axis = b.shape(logits).rank() - 1;
  const DType dtype = b.dtype(logits);
  const Value m = stop_gradient(b, reduce(b, ReduceKind::kMax, logits, {axis}, true));
  const Value z = sub(b, logits, m);
  const Value log_sum = log(b, sum(b, exp(b, z), {axis}));
  const Value zero = scalar(b, dtype, 0);
  const Value picked = sum(b, where(b, is_label(b, logits, labels), z, zero), {axis});
  const Value loss = sub(b, log_sum, picked);
  const auto& ignore = attrs.as<CrossEntropyAttrs>().ignore_index;
  return {ignore ? where(b, is_ignored(b, labels, *ignore), zero, loss) : loss};
}

std::vector<Value> expand_backward(Builder& b, const Attrs& attrs,
                                   std::span<const Value> operands) {
  const Value logits = operands[0], labels = operands[1];
  const int64_t axis = b.shape(logits).rank() - 1;
  const DType dtype = b.dtype(logits);
  const Value hit = is_label(b, logits, labels);
  const Value zero = scalar(b, dtype, 0);
  const Value target = where(b, hit, scalar(b, dtype, 1), zero);
  Value g = mul(b, sub(b, softmax(b, logits, axis), target), unsqueeze(b, operands[2], axis));
  if (const auto& ignore = attrs.as<CrossEntropyAttrs>().ignore_index) {
    g = where(b, unsqueeze(b, is_ignored(b, labels, *ignore), axis), zero, g);
  }
  return {g};
}

Value backward(Builder& b, const RuleCall& call, Value d_loss) {
  return b.call1(kSoftmaxCrossEntropyBackwardOp,
                 Attrs::of(kSoftmaxCrossEntropyBackwardOp.fields, call.as<CrossEntropyAttrs>()),
                 {call.operands[0], call.operands[1], d_loss});
}

std::vector<Value> jvp(Builder& b, const RuleCall& call, std::span<const Value> tangents) {
  if (!tangents[0].valid()) return {Value{}};
  const TensorType& loss = b.type(call.results[0]);
  const Value gradient = backward(b, call, splat(b, loss.dtype, loss.shape, 1));
  return {sum(b, mul(b, gradient, tangents[0]), {loss.shape.rank()})};
}

std::vector<Value> vjp(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  return {backward(b, call, cotangents[0]), Value{}};
}

Cost cost(const CostContext& c) { return {5 * element_count(c.operands[0]), io_bytes(c)}; }

// Labels beyond the extent must be in range.
TailRule tail(const InferContext& c, size_t operand, int64_t axis) {
  if (operand == 1) return TailRule::kZero;
  return axis + 1 < c[0].shape.rank() || operand > 1 ? TailRule::kIgnored : TailRule::kRefused;
}

}  // namespace

RLX_DEFINE_OP(SoftmaxCrossEntropyWithLogits) = {
    .name = "SoftmaxCrossEntropyWithLogits",
    .fields = RLX_FIELDS(CrossEntropyAttrs, ignore_index),
    .doc = R"(Cross entropy of the softmax of logits against class indices, one loss per row.

logits [..., C] of a float type and labels [...] of an integer type give loss [...] of the type of
logits:
  loss = log(sum(exp(logits - m))) - (logits[label] - m),   m = max(logits) of the row.
A row whose label is ignore_index has loss 0, whatever its logits. f16 and bf16 are computed in f32.
A row with NaN or +inf, or with only -inf, gives NaN; a label whose logit is -inf gives +inf.
Errors: shapes that don't match; at run time a label outside of [0, C) other than ignore_index
(negative labels don't wrap). The decomposition can't raise that error: there such a row has no
target.
Derivative: SoftmaxCrossEntropyBackward; none for the labels.
Compare: torch.nn.functional.cross_entropy with reduction "none" and class indices.)",
    .infer = infer_forward,
    .decompose = {.expand = expand_forward},
    .jvp = jvp,
    .vjp = vjp,
    .batching = batch_leading,
    .cost = cost,
    .tail = tail,
};

RLX_DEFINE_OP(SoftmaxCrossEntropyBackward) = {
    .name = "SoftmaxCrossEntropyBackward",
    .fields = RLX_FIELDS(CrossEntropyAttrs, ignore_index),
    .doc = R"(The gradient of SoftmaxCrossEntropyWithLogits in the logits.

logits [..., C], labels [...] (an integer type) and d_loss [...] (the type of logits) give
  dlogits[..., c] = (softmax(logits)[c] - (c == label)) * d_loss   of the type of logits,
and 0 in rows whose label is ignore_index. f16 and bf16 are computed in f32. A row with NaN or +inf,
or with only -inf, gives NaN.
Errors: as the forward op.
Compare: the gradient of torch.nn.functional.cross_entropy.)",
    .infer = infer_backward,
    .decompose = {.expand = expand_backward},
    .batching = batch_leading,
    .cost = cost,
    .tail = tail,
};

Value softmax_cross_entropy(Builder& b, Value logits, Value labels) {
  return b.op(kSoftmaxCrossEntropyWithLogitsOp, CrossEntropyAttrs{}, {logits, labels});
}

}  // namespace rlx
