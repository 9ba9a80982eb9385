// Inputs and params by name, as the transforms take them.
#pragma once

#include <string>
#include <vector>

#include "rlx/ir/graph.h"

namespace rlx {

// The inputs or params of these names; throws on unknown, repeated or non-differentiable ones.
std::vector<Value> differentiable_leaves(const Graph& graph, const std::vector<std::string>& names);

}  // namespace rlx
