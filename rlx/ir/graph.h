// The graph: nodes in topological order, each a call of an op on earlier values.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rlx/base/shape.h"
#include "rlx/ir/field.h"

namespace rlx {

struct OpDef;

// The result `index` of the node `node`. A handle: it has meaning within one graph.
struct Value {
  static constexpr uint32_t kNone = ~uint32_t(0);
  uint32_t node = kNone;
  uint32_t index = 0;
  // An invalid value stands for "absent" (a zero tangent, an optional operand).
  bool valid() const { return node != kNone; }
  bool operator==(const Value&) const = default;
  bool operator<(const Value& o) const { return node != o.node ? node < o.node : index < o.index; }
};

struct Node {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<Value> operands;
  std::vector<TensorType> results;
  std::string label;  // where it came from, for error texts and reports; may be empty
};

struct Output {
  std::string name;
  Value value;
};

// After a run, the parameter holds the value: functional in the graph, in place at run time.
struct Update {
  std::string param;
  Value value;
};

// Append-only: operands precede their users, so ids are a topological order and every pass is one
// walk that builds a new graph. Bodies of control flow are graphs held by attributes.
class Graph {
 public:
  Graph() = default;
  explicit Graph(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }

  size_t size() const { return nodes_.size(); }
  const Node& node(uint32_t id) const { return nodes_[id]; }
  const Node& node(Value v) const { return nodes_[v.node]; }
  const std::deque<Node>& nodes() const { return nodes_; }
  const TensorType& type(Value v) const { return nodes_[v.node].results[v.index]; }

  // Input and Param nodes in the order of their creation.
  const std::vector<Value>& inputs() const { return inputs_; }
  const std::vector<Value>& params() const { return params_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  const std::vector<Update>& updates() const { return updates_; }
  // Index of the input (param, output) with this name; throws with the list of names.
  size_t input_index(std::string_view name) const;
  size_t param_index(std::string_view name) const;
  size_t output_index(std::string_view name) const;
  bool has_output(std::string_view name) const;
  // The input or param of this name (an input first), or an invalid value.
  Value find_leaf(std::string_view name) const;
  // The name attribute of an Input or Param node.
  const std::string& name_of(Value leaf) const;

  void add_output(std::string name, Value value);   // unique names; throws otherwise
  void add_update(std::string param, Value value);  // a mutable param of the same type, once

  void set_output(size_t index, Value value) { outputs_[index].value = value; }

  // Appends without inference; Builder and parsers call it with checked parts.
  uint32_t append(Node node);
  void set_label(uint32_t id, std::string label) { nodes_[id].label = std::move(label); }

  // Same nodes, attributes, types, outputs and updates in the same order (labels do not count).
  friend bool operator==(const Graph& a, const Graph& b);
  size_t hash() const;

 private:
  std::string name_ = "main";
  std::deque<Node> nodes_;  // stable addresses: rules hold a Node& while they append
  std::vector<Value> inputs_, params_;
  std::vector<Output> outputs_;
  std::vector<Update> updates_;
  // Positions in the lists above, by name.
  using NameMap = std::unordered_map<std::string, size_t>;
  NameMap input_names_, param_names_, output_names_, update_names_;
};

// Symbols used by the types of inputs and params, in order of first use.
std::vector<std::string> free_symbols(const Graph& graph);

}  // namespace rlx

template <>
struct std::hash<rlx::Value> {
  size_t operator()(const rlx::Value& v) const noexcept { return (size_t(v.node) << 8) ^ v.index; }
};
