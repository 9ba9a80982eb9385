// Forward mode: the walk behind jvp, and behind the jvp rules of ops with bodies.
#pragma once

#include <span>
#include <vector>

#include "rlx/ir/builder.h"

namespace rlx {

// A value and its tangent; an invalid tangent is zero.
struct Dual {
  Value primal, tangent;
};

// Appends the nodes of `graph` and their tangents, on the duals of its inputs, then of its params.
// Returns the duals of its outputs, then of its updates.
//
// A jvp rule of a control step stands for the call and its tangents together, so that the bodies
// run once: it is given no results, and returns the primal results, then their tangents.
std::vector<Dual> push_forward(Builder& b, const Graph& graph, std::span<const Dual> leaves);

}  // namespace rlx
