// The verifier: what every pass and parser promises about a graph.
#pragma once

#include "rlx/ir/graph.h"

namespace rlx {

// Operands are earlier results; inference gives exactly the recorded types and attributes in normal
// form; names of inputs, params and outputs are unique; updates fit their params; bodies hold too.
// Throws Error(kInternal) that names the node; `after` says which pass made the graph.
void verify(const Graph& graph, std::string_view after = {});

}  // namespace rlx
