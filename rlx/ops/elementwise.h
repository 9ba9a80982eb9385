// What the definitions of the elementwise ops share.
#pragma once

#include "rlx/ir/builder.h"
#include "rlx/ir/op.h"

namespace rlx {

// Every operand and result is touched once; `flops_per_element` counts per result element.
Cost elementwise_cost(const CostContext& c, double flops_per_element);

// `x` itself if it has that shape, else an Expand.
Value expand_to(Builder& b, Value x, const Shape& shape);

// The scalar 0 of x's dtype: broadcasts against anything.
Value zero_of(Builder& b, Value x);

// Rules of ops whose operands all have zero derivatives.
std::vector<Value> jvp_zero(Builder& b, const RuleCall& call, std::span<const Value> tangents);
std::vector<Value> vjp_zero(Builder& b, const RuleCall& call, std::span<const Value> cotangents);

}  // namespace rlx
