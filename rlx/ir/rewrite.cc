#include "rlx/ir/rewrite.h"

#include "rlx/base/error.h"
#include "rlx/ir/bind_size.h"
#include "rlx/ir/leaf.h"
#include "rlx/ir/op.h"

namespace rlx {
namespace {

// Values of the new graph by value of the old one.
class ValueMap {
 public:
  explicit ValueMap(const Graph& graph) : of_node_(graph.size()) {}
  void set(uint32_t node, std::vector<Value> values) { of_node_[node] = std::move(values); }
  Value get(Value old) const { return of_node_[old.node][old.index]; }
  std::vector<Value> get(std::span<const Value> old) const {
    std::vector<Value> v;
    v.reserve(old.size());
    for (Value x : old) v.push_back(get(x));
    return v;
  }

 private:
  std::vector<std::vector<Value>> of_node_;
};

// Nodes without a label (those of a decomposition) get that of the call they stand for.
void map_node(Builder& b, uint32_t id, const Node& n, const std::string& label,
              const NodeRewrite& fn, ValueMap& map) {
  const std::vector<Value> operands = map.get(n.operands);
  std::optional<std::vector<Value>> values;
  b.set_label(n.label.empty() ? label : n.label);
  if (fn) values = fn(b, n, operands);
  if (!values) values = copy_node(b, n, operands);
  if (values->size() != n.results.size()) {
    internal_error("a rewrite of {} gave {} values instead of {}", n.op->name, values->size(),
                   n.results.size());
  }
  map.set(id, std::move(*values));
}

}  // namespace

std::vector<Value> copy_node(Builder& b, const Node& node, std::span<const Value> operands) {
  Node copy = node;
  if (copy.label.empty()) copy.label = b.label();
  copy.operands.assign(operands.begin(), operands.end());
  const uint32_t id = b.graph().append(std::move(copy));
  std::vector<Value> values(node.results.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = {id, uint32_t(i)};
  return values;
}

Graph rewrite(const Graph& graph, const NodeRewrite& fn) {
  Graph out(graph.name());
  Builder b(out);
  ValueMap map(graph);
  for (uint32_t id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (is_signature_leaf(n)) {
      map.set(id, copy_node(b, n, {}));
    } else {
      map_node(b, id, n, {}, fn, map);
    }
  }
  for (const Output& o : graph.outputs()) out.add_output(o.name, map.get(o.value));
  for (const Update& u : graph.updates()) out.add_update(u.param, map.get(u.value));
  return out;
}

std::vector<Value> inline_graph(Builder& b, const Graph& body, std::span<const Value> arguments,
                                const NodeRewrite& fn) {
  if (!body.params().empty()) internal_error("a body graph has params");
  if (arguments.size() != body.inputs().size()) {
    user_error("the graph '{}' takes {} inputs, {} were given", body.name(), body.inputs().size(),
               arguments.size());
  }
  const std::string label = b.label();
  ValueMap map(body);
  size_t next = 0;
  for (uint32_t id = 0; id < body.size(); ++id) {
    const Node& n = body.node(id);
    if (is_signature_leaf(n)) {
      map.set(id, {arguments[next++]});
    } else {
      map_node(b, id, n, label, fn, map);
    }
  }
  b.set_label(label);
  std::vector<Value> outputs;
  for (const Output& o : body.outputs()) outputs.push_back(map.get(o.value));
  return outputs;
}

std::vector<uint8_t> live_nodes(const Graph& graph) {
  std::vector<uint8_t> live(graph.size(), 0);
  for (const Output& o : graph.outputs()) live[o.value.node] = 1;
  for (const Update& u : graph.updates()) live[u.value.node] = 1;
  MentionedSizes sizes(graph);
  for (uint32_t id = uint32_t(graph.size()); id-- > 0;) {
    const Node& n = graph.node(id);
    if (!live[id] && !sizes.needs(n)) continue;
    live[id] = 1;
    for (Value v : n.operands) live[v.node] = 1;
    sizes.add(n);
  }
  return live;
}

std::vector<uint32_t> use_counts(const Graph& graph) {
  std::vector<uint32_t> uses(graph.size(), 0);
  for (const Node& n : graph.nodes()) {
    for (Value v : n.operands) ++uses[v.node];
  }
  for (const Output& o : graph.outputs()) ++uses[o.value.node];
  for (const Update& u : graph.updates()) ++uses[u.value.node];
  return uses;
}

}  // namespace rlx
