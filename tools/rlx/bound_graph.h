// A graph with values for everything that it takes, as `rlx run` and `rlx diff` need it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "rlx/ir/graph.h"
#include "tools/rlx/commands.h"

namespace rlx::cli {

struct BoundGraph {
  Graph loaded;  // as the file has it
  Graph graph;   // without symbols
  std::vector<Array> inputs;
  std::map<std::string, Array> params;
};
// Loads args.graph, reads or draws its inputs and params, and binds its sizes.
BoundGraph bind_values(const ValueArgs& args);

}  // namespace rlx::cli
