// Reverse mode. Names refer to inputs or params of float or complex dtype.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rlx/ir/graph.h"

namespace rlx {

// The graph with, after its own outputs, one output "d_<name>" for each name in wrt: the gradient
// of the scalar real output `loss`. Where a name is taken, the prefix is repeated (d_d_x). Values
// that forward and backward share are computed once. Throws Error(kUser) if the loss is not a
// scalar, Error(kUnsupported) where an op on the way has no derivative.
Graph grad(const Graph& graph, std::string_view loss, const std::vector<std::string>& wrt);

// The graph with one more input "ct_<output>" for every differentiable output and one more output
// "d_<name>" for each name in wrt: the vector-Jacobian product. For complex values a cotangent
// is the derivative with respect to the conjugate.
Graph vjp(const Graph& graph, const std::vector<std::string>& wrt);

}  // namespace rlx
