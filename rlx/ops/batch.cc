#include "rlx/ops/batch.h"

#include <algorithm>

#include "rlx/base/error.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/derive.h"
#include "rlx/ops/rules.h"

namespace rlx {
namespace {

// Walks a graph into a builder, knowing for every value whether it has the batch axis (axis 0).
class BatchDriver {
 public:
  BatchDriver(Builder& b, const Graph& source, const Dim& size)
      : b_(b), source_(source), size_(size), of_(source.size()), label_(b.label()) {}

  void bind(uint32_t node, Lane lane) { of_[node] = {lane}; }
  Lane get(Value v) const { return of_[v.node][v.index]; }

  const std::string& label() const { return label_; }

  void walk() {
    for (uint32_t id = 0; id < source_.size(); ++id) {
      if (of_[id].empty()) of_[id] = step(source_.node(id));
    }
  }

 private:
  std::vector<Lane> step(const Node& n) {
    std::vector<Value> operands;
    std::vector<uint8_t> batched;
    for (Value v : n.operands) {
      operands.push_back(get(v).value);
      batched.push_back(get(v).batched);
    }
    b_.set_label(n.label.empty() ? label_ : n.label);
    std::vector<Lane> lanes;
    if (std::find(batched.begin(), batched.end(), 1) == batched.end()) {
      for (Value v : copy_node(b_, n, operands)) lanes.push_back({v, false});
      return lanes;
    }
    if (!n.op->batching) return expand(n, operands, batched);
    const auto results = n.op->batching(b_, {*n.op, n.attrs, operands, {}}, batched, size_);
    if (results.size() != n.results.size()) {
      internal_error("the batching rule of {} gave {} values for {} results", n.op->name,
                     results.size(), n.results.size());
    }
    for (size_t i = 0; i < results.size(); ++i) {
      TensorType expected = n.results[i];
      expected.shape.insert(0, size_);
      if (b_.type(results[i]) != expected) {
        internal_error("the batching rule of {} gave {} instead of {}", n.op->name,
                       b_.type(results[i]).to_string(), expected.to_string());
      }
      lanes.push_back({results[i], true});
    }
    return lanes;
  }

  std::vector<Lane> expand(const Node& n, std::span<const Value> operands,
                           std::span<const uint8_t> batched) {
    if (!n.op->decompose) {
      fail(ErrorKind::kUnsupported, "{} cannot be batched: it has no rule and no decomposition",
           n.op->name);
    }
    std::vector<TensorType> types;
    for (Value v : n.operands) types.push_back(source_.type(v));
    const Graph body = expand_to_graph(*n.op, n.attrs, types);
    BatchDriver inner(b_, body, size_);
    for (size_t i = 0; i < operands.size(); ++i) {
      inner.bind(body.inputs()[i].node, {operands[i], batched[i] != 0});
    }
    inner.walk();
    std::vector<Lane> lanes;
    for (const Output& o : body.outputs()) {
      // Results of one call agree: all batched, as a rule would give them.
      const Lane lane = inner.get(o.value);
      lanes.push_back({with_batch(b_, lane.value, lane.batched, size_), true});
    }
    return lanes;
  }

  Builder& b_;
  const Graph& source_;
  const Dim& size_;
  std::vector<std::vector<Lane>> of_;
  const std::string label_;  // of the call that a body stands for
};

// Inputs, then params.
std::vector<Value> leaves_of(const Graph& graph) {
  std::vector<Value> leaves = graph.inputs();
  leaves.insert(leaves.end(), graph.params().begin(), graph.params().end());
  return leaves;
}

}  // namespace

std::vector<Lane> batch_graph(Builder& b, const Graph& graph, const Dim& size,
                              std::span<const Lane> leaves) {
  BatchDriver driver(b, graph, size);
  const std::vector<Value> nodes = leaves_of(graph);
  if (nodes.size() != leaves.size()) {
    internal_error("'{}' has {} leaves, {} are bound", graph.name(), nodes.size(), leaves.size());
  }
  for (size_t i = 0; i < nodes.size(); ++i) driver.bind(nodes[i].node, leaves[i]);
  driver.walk();
  b.set_label(driver.label());
  std::vector<Lane> outputs;
  for (const Output& o : graph.outputs()) outputs.push_back(driver.get(o.value));
  return outputs;
}

}  // namespace rlx
