#include "rlx/ir/graph.h"

#include <algorithm>

#include "rlx/base/error.h"
#include "rlx/ir/leaf.h"
#include "rlx/ir/op.h"

namespace rlx {
namespace {

using NameMap = std::unordered_map<std::string, size_t>;

size_t index_of(const NameMap& names, std::string_view what, std::string_view name) {
  if (const auto it = names.find(std::string(name)); it != names.end()) return it->second;
  std::vector<std::string_view> in_order(names.size());
  for (const auto& [n, i] : names) in_order[i] = n;
  std::string list;
  for (std::string_view n : in_order) list += (list.empty() ? "" : ", ") + std::string(n);
  user_error("the graph has no {} '{}'; it has: {}", what, name, list.empty() ? "none" : list);
}

}  // namespace

// By name: the OpDefs of the leaves stand above, in ops/.
bool is_signature_leaf(const Node& node) {
  return node.op->has(kLeaf) && node.op->name != "Constant";
}
bool is_constant(const Node& node) { return node.op->has(kLeaf) && node.op->name == "Constant"; }

uint32_t Graph::append(Node node) {
  const auto id = uint32_t(nodes_.size());
  if (id == Value::kNone) user_error("a graph has at most 2^32 - 1 nodes");
  if (is_signature_leaf(node)) {
    const bool is_param = node.op->name == "Param";
    const std::string& name =
        is_param ? node.attrs.as<ParamAttrs>().name : node.attrs.as<InputAttrs>().name;
    auto& list = is_param ? params_ : inputs_;
    if (!(is_param ? param_names_ : input_names_).emplace(name, list.size()).second) {
      user_error("two {}s are called '{}'", is_param ? "param" : "input", name);
    }
    list.push_back({id, 0});
  }
  nodes_.push_back(std::move(node));
  return id;
}

const std::string& Graph::name_of(Value leaf) const {
  const Node& n = node(leaf);
  return n.op->name == "Param" ? n.attrs.as<ParamAttrs>().name : n.attrs.as<InputAttrs>().name;
}

Value Graph::find_leaf(std::string_view name) const {
  const std::string key(name);
  if (const auto it = input_names_.find(key); it != input_names_.end()) return inputs_[it->second];
  if (const auto it = param_names_.find(key); it != param_names_.end()) return params_[it->second];
  return {};
}

size_t Graph::input_index(std::string_view name) const {
  return index_of(input_names_, "input", name);
}
size_t Graph::param_index(std::string_view name) const {
  return index_of(param_names_, "param", name);
}
bool Graph::has_output(std::string_view name) const {
  return output_names_.count(std::string(name)) != 0;
}
size_t Graph::output_index(std::string_view name) const {
  return index_of(output_names_, "output", name);
}

void Graph::add_output(std::string name, Value value) {
  if (value.node >= size() || value.index >= node(value).results.size()) {
    user_error("output '{}' is not a value of this graph", name);
  }
  if (!output_names_.emplace(name, outputs_.size()).second) {
    user_error("two outputs are called '{}'", name);
  }
  outputs_.push_back({std::move(name), value});
}

void Graph::add_update(std::string param, Value value) {
  if (value.node >= size() || value.index >= node(value).results.size()) {
    user_error("the update of '{}' is not a value of this graph", param);
  }
  const Value leaf = params_[param_index(param)];
  if (!node(leaf).attrs.as<ParamAttrs>().is_mutable) {
    user_error("param '{}' is frozen: only a mutable param can be updated", param);
  }
  if (type(leaf) != type(value)) {
    user_error("param '{}' is {}, its update is {}", param, type(leaf).to_string(),
               type(value).to_string());
  }
  if (!update_names_.emplace(param, updates_.size()).second) {
    user_error("param '{}' is updated twice", param);
  }
  updates_.push_back({std::move(param), value});
}

bool operator==(const Graph& a, const Graph& b) {
  if (a.size() != b.size() || a.outputs_.size() != b.outputs_.size() ||
      a.updates_.size() != b.updates_.size()) {
    return false;
  }
  for (uint32_t i = 0; i < a.size(); ++i) {
    const Node &x = a.node(i), &y = b.node(i);
    if (x.op != y.op || x.operands != y.operands || x.results != y.results ||
        !(x.attrs == y.attrs)) {
      return false;
    }
  }
  for (size_t i = 0; i < a.outputs_.size(); ++i) {
    if (a.outputs_[i].name != b.outputs_[i].name || a.outputs_[i].value != b.outputs_[i].value) {
      return false;
    }
  }
  for (size_t i = 0; i < a.updates_.size(); ++i) {
    if (a.updates_[i].param != b.updates_[i].param || a.updates_[i].value != b.updates_[i].value) {
      return false;
    }
  }
  return true;
}

size_t Graph::hash() const {
  size_t h = size();
  for (const Node& n : nodes_) {
    h = h * 1000003 + std::hash<std::string_view>()(n.op->name) + n.attrs.hash();
    for (Value v : n.operands) h = h * 31 + std::hash<Value>()(v);
  }
  for (const Output& o : outputs_) h = h * 31 + std::hash<Value>()(o.value);
  return h;
}

std::vector<std::string> free_symbols(const Graph& graph) {
  std::vector<std::string> symbols;
  const auto collect = [&](const std::vector<Value>& leaves) {
    for (Value v : leaves) {
      for (const Dim& d : graph.type(v).shape) d.collect_symbols(symbols);
    }
  };
  collect(graph.inputs());
  collect(graph.params());
  return symbols;
}

}  // namespace rlx
