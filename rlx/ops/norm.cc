#include "rlx/ops/norm.h"

#include <algorithm>

#include "rlx/ops/build.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {
namespace {

void check_x(const InferContext& c) {
  expect_dtype(c, 0, dtypes::kFloats, "x");
  const auto& a = c.as<NormAttrs>();
  if (!(a.eps >= 0)) user_error("eps is {}, expected a number that is not negative", a.eps);
  if (a.batch_axes < 0 || a.batch_axes > a.axis) {
    user_error("batch_axes is {}, expected 0 to {} (the axes before the normalized ones)",
               a.batch_axes, a.axis);
  }
}

// Of gamma and beta.
TensorType affine_type(const InferContext& c) {
  const auto& a = c.as<NormAttrs>();
  Shape shape = c[0].shape.slice(0, a.batch_axes);
  for (int64_t axis = a.axis; axis < c[0].shape.rank(); ++axis) shape.push_back(c[0].shape[axis]);
  return {c[0].dtype, std::move(shape)};
}

// Operand i is gamma or beta.
void check_affine(const InferContext& c, size_t i, std::string_view what) {
  const TensorType expected = affine_type(c);
  if (c[i] != expected) {
    user_error("{} must be {} ({}), it is {}", what, expected.to_string(),
               c.as<NormAttrs>().batch_axes == 0 ? "x from the axis on"
                                                 : "the batch axes of x, then x from the axis on",
               c[i].to_string());
  }
}

// first, ..., last - 1.
std::vector<int64_t> axes_between(int64_t first, int64_t last) {
  std::vector<int64_t> axes;
  for (int64_t a = first; a < last; ++a) axes.push_back(a);
  return axes;
}

// gamma or beta, ready to broadcast against x.
Value align_affine(Builder& b, Value v, const NormAttrs& a) {
  if (a.batch_axes == 0) return v;
  for (int64_t i = a.batch_axes; i < a.axis; ++i) v = unsqueeze(b, v, a.batch_axes);
  return v;
}

}  // namespace

std::vector<TensorType> infer_norm(const InferContext& c) {
  expect_operands(c, 1, 3);
  check_x(c);
  if (c.operands.size() > 1) check_affine(c, 1, "gamma");
  if (c.operands.size() > 2) check_affine(c, 2, "beta");
  return {c[0]};
}

std::vector<TensorType> infer_norm_backward(const InferContext& c) {
  expect_operands(c, 2, 3);
  check_x(c);
  if (c.operands.size() == 3) check_affine(c, 1, "gamma");
  expect_same_type(c, 0, c.operands.size() - 1);
  const TensorType parameter = affine_type(c);
  return {c[0], parameter, parameter};
}

std::vector<TensorType> infer_norm_backward_gamma(const InferContext& c) {
  expect_operands(c, 2);
  return {infer_norm_backward(c)[1]};
}

Value call_norm(Builder& b, const OpDef& op, Value x, Value gamma, Value beta, const NormAttrs& a) {
  if (!gamma.valid()) {
    const Value y = b.op(op, a, {x});
    return beta.valid() ? add(b, y, beta) : y;
  }
  return beta.valid() ? b.op(op, a, {x, gamma, beta}) : b.op(op, a, {x, gamma});
}

std::vector<Value> call_norm_backward(Builder& b, const OpDef& op, Value x, Value gamma, Value dy,
                                      const NormAttrs& a) {
  const Attrs erased = Attrs::of(op.fields, a);
  return gamma.valid() ? b.call(op, erased, {x, gamma, dy}) : b.call(op, erased, {x, dy});
}

std::vector<int64_t> normalized_axes(const Builder& b, Value x, const NormAttrs& a) {
  return axes_between(a.axis, b.shape(x).rank());
}

std::vector<Value> expand_norm(Builder& b, const NormAttrs& a, std::span<const Value> operands,
                               Value x_hat) {
  Value y = x_hat;
  if (operands.size() > 1) y = mul(b, y, align_affine(b, operands[1], a));
  if (operands.size() > 2) y = add(b, y, align_affine(b, operands[2], a));
  return {y};
}

// dx = inverse * (g - mean(g) - x_hat * mean(g * x_hat)), g = dy * gamma; mean(g) if centered.
std::vector<Value> expand_norm_backward(Builder& b, const NormAttrs& a,
                                        std::span<const Value> operands, NormalizedRows rows,
                                        bool centered) {
  const auto [x_hat, inverse] = rows;
  const Value dy = operands.back();
  const auto axes = normalized_axes(b, operands[0], a), summed = axes_between(a.batch_axes, a.axis);
  const Value g = operands.size() == 3 ? mul(b, dy, align_affine(b, operands[1], a)) : dy;
  const Value along = mul(b, x_hat, mean(b, mul(b, g, x_hat), axes, true));
  const Value across = sub(b, centered ? sub(b, g, mean(b, g, axes, true)) : g, along);
  return {mul(b, inverse, across), sum(b, mul(b, dy, x_hat), summed), sum(b, dy, summed)};
}

// The Jacobian of the plain normalization is symmetric.
std::vector<Value> norm_jvp(Builder& b, const RuleCall& call, std::span<const Value> tangents,
                            const OpDef& backward) {
  const auto& a = call.as<NormAttrs>();
  const Value x = call.operands[0];
  Value t;
  if (tangents[0].valid()) {
    t = call_norm_backward(b, backward, x, {}, tangents[0], a)[0];
    if (call.operands.size() > 1) t = mul(b, t, align_affine(b, call.operands[1], a));
  }
  if (tangents.size() > 1 && tangents[1].valid()) {
    const Value x_hat = b.op(call.op, a, {x});
    t = add_valid(b, t, mul(b, x_hat, align_affine(b, tangents[1], a)));
  }
  if (tangents.size() > 2 && tangents[2].valid()) {
    t = add_valid(b, t, expand(b, align_affine(b, tangents[2], a), b.shape(x)));
  }
  return {t};
}

std::vector<Value> norm_batching(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                                 const Dim& size) {
  NormAttrs a = call.as<NormAttrs>();
  const bool shared = a.batch_axes == 0 && std::none_of(batched.begin() + 1, batched.end(),
                                                        [](uint8_t f) { return f != 0; });
  a.axis += 1;
  if (!shared) a.batch_axes += 1;
  std::vector<Value> operands(call.operands.begin(), call.operands.end());
  for (size_t i = 0; i < (shared ? 1 : operands.size()); ++i) {
    operands[i] = with_batch(b, operands[i], batched[i] != 0, size);
  }
  return b.call(call.op, Attrs::of(call.attrs.table(), a), operands);
}

std::vector<Value> norm_backward_batching(Builder& b, const RuleCall& call,
                                          std::span<const uint8_t> batched, const Dim& size) {
  NormAttrs a = call.as<NormAttrs>();
  a.axis += 1;
  a.batch_axes += 1;
  std::vector<Value> operands(call.operands.begin(), call.operands.end());
  for (size_t i = 0; i < operands.size(); ++i) {
    operands[i] = with_batch(b, operands[i], batched[i] != 0, size);
  }
  return b.call(call.op, Attrs::of(call.attrs.table(), a), operands);
}

TailRule norm_tail(const InferContext& c, size_t operand, int64_t axis) {
  const auto& a = c.as<NormAttrs>();
  const int64_t normalized = operand == 0 ? a.axis : a.batch_axes;
  return axis < normalized ? TailRule::kIgnored : TailRule::kRefused;
}

// dgamma and dbeta sum over the rows.
TailRule norm_backward_tail(const InferContext& c, size_t operand, int64_t axis) {
  const auto& a = c.as<NormAttrs>();
  const bool weight = c.operands.size() > 2 && operand == 1;
  const int64_t normalized = weight ? a.batch_axes : a.axis;
  if (axis >= normalized) return TailRule::kRefused;
  return axis < a.batch_axes ? TailRule::kIgnored : TailRule::kZero;
}

}  // namespace rlx
