// Forward mode.
#pragma once

#include <string>
#include <vector>

#include "rlx/ir/graph.h"

namespace rlx {

// The graph with one more input "t_<name>" for each name in wrt (an input or param) and one more
// output "t_<output>" for every differentiable output: the Jacobian-vector product. Where a name is
// taken, the prefix is repeated (t_t_x).
Graph jvp(const Graph& graph, const std::vector<std::string>& wrt);

}  // namespace rlx
