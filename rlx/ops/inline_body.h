// Ops that hold a straight-line graph and stand for it: regions and groups.
#pragma once

#include <span>
#include <vector>

#include "rlx/ir/builder.h"

namespace rlx {

// The result types of a call with this body: its inputs are the operands in order, its outputs the
// results. Throws Error(kUser) if it is missing, has params or updates, or other input types.
std::vector<TensorType> infer_body(const InferContext& c, const GraphRef& body);

// Appends the body's nodes. Unless `strict_rounding`, values of 16-bit floats are computed in f32
// (with the same calls) and rounded only by Casts and where they become a result.
std::vector<Value> inline_body(Builder& b, const Graph& body, std::span<const Value> operands,
                               bool strict_rounding);

}  // namespace rlx
