// What the row norms (LayerNorm, RmsNorm) and their gradients share.
#pragma once

#include "rlx/ir/builder.h"

namespace rlx {

// Statistics over the axes axis, ..., rank - 1 together. gamma, beta and their gradients have the
// shape x.shape[:batch_axes] + x.shape[axis:].
struct NormAttrs {
  int64_t axis = -1;
  double eps = 1e-5;
  int64_t batch_axes = 0;
};

// x, gamma, beta -> y; gamma and beta may be left out from the end.
std::vector<TensorType> infer_norm(const InferContext& c);
// x, gamma (optional), dy -> dx, dgamma, dbeta.
std::vector<TensorType> infer_norm_backward(const InferContext& c);
// x, dy -> dgamma (or dbeta, which has the same type).
std::vector<TensorType> infer_norm_backward_gamma(const InferContext& c);

// Calls of the forward and the backward kinds; gamma and beta may be invalid.
Value call_norm(Builder& b, const OpDef& op, Value x, Value gamma, Value beta, const NormAttrs& a);
std::vector<Value> call_norm_backward(Builder& b, const OpDef& op, Value x, Value gamma, Value dy,
                                      const NormAttrs& a);

// The axes axis, ..., rank - 1.
std::vector<int64_t> normalized_axes(const Builder& b, Value x, const NormAttrs& a);

// The decompositions, from the rows normalized without gamma and beta.
struct NormalizedRows {
  Value x_hat;
  Value inverse;  // 1 / sqrt(variance or mean square + eps), kept axes
};
std::vector<Value> expand_norm(Builder& b, const NormAttrs& a, std::span<const Value> operands,
                               Value x_hat);
// `centered`: the mean of x was subtracted.
std::vector<Value> expand_norm_backward(Builder& b, const NormAttrs& a,
                                        std::span<const Value> operands, NormalizedRows rows,
                                        bool centered);
// Of the kinds for one result of the backward kind.
template <const OpDef& kBackward, size_t kResult>
std::vector<Value> expand_norm_part(Builder& b, const Attrs& attrs,
                                    std::span<const Value> operands) {
  return {call_norm_backward(b, kBackward, operands[0], {}, operands[1],
                             attrs.as<NormAttrs>())[kResult]};
}

std::vector<Value> norm_jvp(Builder& b, const RuleCall& call, std::span<const Value> tangents,
                            const OpDef& backward);
template <const OpDef& kBackward>
std::vector<Value> norm_jvp(Builder& b, const RuleCall& call, std::span<const Value> tangents) {
  return norm_jvp(b, call, tangents, kBackward);
}
template <const OpDef& kBackward>
std::vector<Value> norm_vjp(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  const Value gamma = call.operands.size() > 1 ? call.operands[1] : Value{};
  auto gradients = call_norm_backward(b, kBackward, call.operands[0], gamma, cotangents[0],
                                      call.as<NormAttrs>());
  gradients.resize(call.operands.size());
  return gradients;
}

// gamma and beta stay shared if neither they nor an outer batch make them differ by example.
std::vector<Value> norm_batching(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                                 const Dim& size);
// The gradients of gamma and beta are not summed over the batch.
std::vector<Value> norm_backward_batching(Builder& b, const RuleCall& call,
                                          std::span<const uint8_t> batched, const Dim& size);

// Rows may be of any number; the normalized axes have no rule (decomposed, they are masked sums).
TailRule norm_tail(const InferContext& c, size_t operand, int64_t axis);
TailRule norm_backward_tail(const InferContext& c, size_t operand, int64_t axis);

}  // namespace rlx
