#include "rlx/transform/leaves.h"

#include <algorithm>

#include "rlx/base/error.h"

namespace rlx {

std::vector<Value> differentiable_leaves(const Graph& graph,
                                         const std::vector<std::string>& names) {
  std::vector<Value> values;
  for (const std::string& name : names) {
    Value found;
    for (const auto* list : {&graph.inputs(), &graph.params()}) {
      for (Value v : *list) {
        if (graph.name_of(v) == name) found = v;
      }
    }
    if (!found.valid()) user_error("the graph has no input or param '{}'", name);
    if (std::find(values.begin(), values.end(), found) != values.end()) {
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
  const auto taken = [&] {
    for (const auto* list : {&graph.inputs(), &graph.params()}) {
      for (Value v : *list) {
        if (graph.name_of(v) == fresh) return true;
      }
    }
    return false;
  };
  while (taken()) fresh.insert(0, prefix);
  return fresh;
}

std::string fresh_output_name(const Graph& graph, std::string_view prefix, std::string_view name) {
  std::string fresh = fmt::format("{}{}", prefix, name);
  const auto taken = [&] {
    return std::any_of(graph.outputs().begin(), graph.outputs().end(),
                       [&](const Output& o) { return o.name == fresh; });
  };
  while (taken()) fresh.insert(0, prefix);
  return fresh;
}

}  // namespace rlx
