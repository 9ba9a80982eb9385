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

std::vector<int64_t> axes_between(int64_t first, int64_t last) {
  std::vector<int64_t> axes;
  for (int64_t a = first; a < last; ++a) axes.push_back(a);
  return axes;
}

Value align_affine(Builder& b, Value v, const NormAttrs& a) {
  if (a.batch_axes == 0) return v;
  for (int64_t i = a.batch_axes; i < a.axis; ++i) v = unsqueeze(b, v, a.batch_axes);
  return v;
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
