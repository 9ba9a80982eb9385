// Inputs and params by name, as the transforms take them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rlx/ir/graph.h"

namespace rlx {

// The inputs or params of these names; throws on unknown, repeated or non-differentiable ones.
std::vector<Value> differentiable_leaves(const Graph& graph, const std::vector<std::string>& names);

// prefix + name, with the prefix repeated until no other leaf (no other output) of the graph has
// that name: transforms of transforms stay unambiguous.
std::string fresh_input_name(const Graph& graph, std::string_view prefix, std::string_view name);
std::string fresh_output_name(const Graph& graph, std::string_view prefix, std::string_view name);

}  // namespace rlx
