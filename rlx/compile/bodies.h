// Passes in the bodies of control flow.
#pragma once

#include <functional>
#include <vector>

#include "rlx/ir/builder.h"
#include "rlx/ir/graph.h"

namespace rlx {

using GraphPass = std::function<Graph(const Graph&)>;

// A copy of the call of a control step with every body replaced by what the pass makes of it. The
// pass keeps inputs and output types.
Node map_bodies(const Node& node, const GraphPass& pass);
// The same, appended on new operands.
std::vector<Value> copy_with_bodies(Builder& b, const Node& node, std::span<const Value> operands,
                                    const GraphPass& pass);

}  // namespace rlx
