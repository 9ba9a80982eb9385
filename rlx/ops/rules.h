// Derivative and batching rules for whole classes of ops.
#pragma once

#include "rlx/ir/op.h"

namespace rlx {

// Linear in every operand together (Reshape, Transpose, Concat, ...): the op applied to the
// tangents; operands with zero tangent become zeros.
std::vector<Value> jvp_linear(Builder& b, const RuleCall& call, std::span<const Value> tangents);
// Linear in each operand alone (MatMul, Conv, DotGeneral): the sum over the operands with a tangent
// of the op with that operand replaced.
std::vector<Value> jvp_multilinear(Builder& b, const RuleCall& call,
                                   std::span<const Value> tangents);
// One operand, elementwise or with symmetric Jacobian (Softmax): the tangent is what the op's own
// vjp gives for it.
std::vector<Value> jvp_by_vjp(Builder& b, const RuleCall& call, std::span<const Value> tangents);

// Elementwise with broadcasting: batched operands are padded with 1s after the batch axis up to the
// largest rank.
std::vector<Value> batch_elementwise(Builder& b, const RuleCall& call,
                                     std::span<const uint8_t> batched, const Dim& size);
// All operands with the batch axis (others are expanded to it), attributes unchanged: for ops that
// treat leading axes alike and count no axis from the front.
std::vector<Value> batch_leading(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                                 const Dim& size);
// The same for attribute structs with a normalized `axis`, which is shifted by one.
std::vector<Value> batch_leading_axis(Builder& b, const RuleCall& call,
                                      std::span<const uint8_t> batched, const Dim& size);

// Operand i with the batch axis: itself if batched, else expanded.
Value with_batch(Builder& b, Value v, bool batched, const Dim& size);
// Sum that treats invalid values as zero.
Value add_valid(Builder& b, Value x, Value y);

}  // namespace rlx
