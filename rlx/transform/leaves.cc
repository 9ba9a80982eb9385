#include "rlx/transform/leaves.h"

#include <unordered_set>

#include "rlx/base/error.h"

namespace rlx {

std::vector<Value> differentiable_leaves(const Graph& graph,
                                         const std::vector<std::string>& names) {
  std::vector<Value> values;
  std::unordered_set<Value> seen;
  for (const std::string& name : names) {
    const Value found = graph.find_leaf(name);
    if (!found.valid()) user_error("the graph has no input or param '{}'", name);
    if (!seen.insert(found).second) {
      user_error("'{}' is named twice", name);
    }
    if (!is_differentiable(graph.type(found).dtype)) {
      user_error("'{}' is {}: only floats and complex numbers have derivatives", name,
                 graph.type(found).to_string());
    }
    values.push_back(found);
  }
  return values;
}

std::string fresh_input_name(const Graph& graph, std::string_view prefix, std::string_view name) {
  std::string fresh = fmt::format("{}{}", prefix, name);
  while (graph.find_leaf(fresh).valid()) fresh.insert(0, prefix);
  return fresh;
}

std::string fresh_output_name(const Graph& graph, std::string_view prefix, std::string_view name) {
  std::string fresh = fmt::format("{}{}", prefix, name);
  while (graph.has_output(fresh)) fresh.insert(0, prefix);
  return fresh;
}

}  // namespace rlx
