// Graphs from files and back, and the sizes that the command line binds.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "rlx/base/array.h"
#include "rlx/ir/graph.h"

namespace rlx::cli {

// Text or binary, whichever the first bytes say. Errors name the path.
Graph load(const std::string& path);
// By extension: .rlx is text, .rlxb is binary; UsageError otherwise.
void save(const Graph& graph, const std::string& path);

// "n=32" ...: throws UsageError on bad syntax, naming the option.
SymbolBindings parse_dims(const std::vector<std::string>& dims, std::string_view option = "--dims");
// The graph with these symbols bound; throws Error(kUser) on a symbol that the graph has not.
Graph bind_dims(const Graph& graph, const SymbolBindings& dims);
// Binds the symbols that the shapes of the given inputs determine. Throws Error(kUser) if an array
// is not of its input's type.
Graph bind_given(const Graph& graph, const std::map<std::string, Array>& inputs);
// Throws Error(kUser) naming the symbols that are left.
void require_static(const Graph& graph);

}  // namespace rlx::cli
