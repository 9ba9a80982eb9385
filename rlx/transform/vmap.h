// Automatic batching.
#pragma once

#include <string>
#include <vector>

#include "rlx/ir/graph.h"

namespace rlx {

// The graph applied to `size` examples at once: the named inputs get a leading axis of that size,
// and so do all outputs. Params and the other inputs are shared by all examples. Random ops draw
// the same numbers for every example unless their seed is batched. A graph with updates cannot be
// batched (which example would win?): Error(kUser).
Graph vmap(const Graph& graph, const Dim& size, const std::vector<std::string>& batched);

}  // namespace rlx
