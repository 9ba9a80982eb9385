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

// first, ..., last - 1.
std::vector<int64_t> axes_between(int64_t first, int64_t last);
// gamma or beta, ready to broadcast against x.
Value align_affine(Builder& b, Value v, const NormAttrs& a);

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
