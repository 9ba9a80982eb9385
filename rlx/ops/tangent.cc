#include "rlx/ops/tangent.h"

#include "rlx/base/error.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/derive.h"

namespace rlx {
namespace {

// Walks a graph into a builder, carrying a tangent (invalid: zero) beside every value.
class ForwardDriver {
 public:
  ForwardDriver(Builder& b, const Graph& source)
      : b_(b), source_(source), of_(source.size()), label_(b.label()) {}

  void bind(uint32_t node, Dual dual) { of_[node] = {dual}; }
  Dual get(Value v) const { return of_[v.node][v.index]; }

  const std::string& label() const { return label_; }

  void walk() {
    for (uint32_t id = 0; id < source_.size(); ++id) {
      if (of_[id].empty()) of_[id] = step(source_.node(id));
    }
  }

 private:
  std::vector<Dual> step(const Node& n) {
    std::vector<Value> primals, tangents;
    bool any = false;
    for (Value v : n.operands) {
      primals.push_back(get(v).primal);
      tangents.push_back(get(v).tangent);
      any |= tangents.back().valid();
    }
    b_.set_label(n.label.empty() ? label_ : n.label);
    const bool zero = !any || n.op->has(kNoGradient);
    if (!zero && !n.op->jvp) return expand(n, primals, tangents);
    if (!zero && n.op->has(kControl)) return with_bodies(n, primals, tangents);
    const std::vector<Value> results = copy_node(b_, n, primals);
    std::vector<Value> out(results.size());
    if (!zero) out = n.op->jvp(b_, {*n.op, n.attrs, primals, results}, tangents);
    if (out.size() != results.size()) {
      internal_error("the jvp of {} gave {} tangents for {} results", n.op->name, out.size(),
                     results.size());
    }
    return checked(n, results, out);
  }

  std::vector<Dual> with_bodies(const Node& n, std::span<const Value> primals,
                                std::span<const Value> tangents) {
    const std::vector<Value> all = n.op->jvp(b_, {*n.op, n.attrs, primals, {}}, tangents);
    const size_t count = n.results.size();
    if (all.size() != 2 * count) {
      internal_error("the jvp of {} gave {} values for {} results", n.op->name, all.size(), count);
    }
    return checked(n, std::span(all).first(count), std::span(all).subspan(count));
  }

  std::vector<Dual> checked(const Node& n, std::span<const Value> results,
                            std::span<const Value> tangents) const {
    std::vector<Dual> duals;
    for (size_t i = 0; i < results.size(); ++i) {
      if (tangents[i].valid() && b_.type(tangents[i]) != b_.type(results[i])) {
        internal_error("the jvp of {} gave {} for a result of type {}", n.op->name,
                       b_.type(tangents[i]).to_string(), b_.type(results[i]).to_string());
      }
      duals.push_back({results[i], tangents[i]});
    }
    return duals;
  }

  std::vector<Dual> expand(const Node& n, std::span<const Value> primals,
                           std::span<const Value> tangents) {
    if (!n.op->decompose) {
      fail(ErrorKind::kUnsupported,
           "{} is not differentiable in forward mode: it has no rule and no decomposition",
           n.op->name);
    }
    std::vector<TensorType> types;
    for (Value v : primals) types.push_back(b_.type(v));
    const Graph body = expand_to_graph(*n.op, n.attrs, types);
    ForwardDriver inner(b_, body);
    for (size_t i = 0; i < primals.size(); ++i) {
      inner.bind(body.inputs()[i].node, {primals[i], tangents[i]});
    }
    inner.walk();
    std::vector<Dual> duals;
    for (const Output& o : body.outputs()) duals.push_back(inner.get(o.value));
    return duals;
  }

  Builder& b_;
  const Graph& source_;
  std::vector<std::vector<Dual>> of_;
  const std::string label_;  // of the call that a body stands for
};

// Inputs, then params.
std::vector<Value> leaves_of(const Graph& graph) {
  std::vector<Value> leaves = graph.inputs();
  leaves.insert(leaves.end(), graph.params().begin(), graph.params().end());
  return leaves;
}

}  // namespace

std::vector<Dual> push_forward(Builder& b, const Graph& graph, std::span<const Dual> leaves) {
  ForwardDriver driver(b, graph);
  const std::vector<Value> nodes = leaves_of(graph);
  if (nodes.size() != leaves.size()) {
    internal_error("'{}' has {} leaves, {} are bound", graph.name(), nodes.size(), leaves.size());
  }
  for (size_t i = 0; i < nodes.size(); ++i) driver.bind(nodes[i].node, leaves[i]);
  driver.walk();
  b.set_label(driver.label());
  std::vector<Dual> duals;
  for (const Output& o : graph.outputs()) duals.push_back(driver.get(o.value));
  for (const Update& u : graph.updates()) duals.push_back(driver.get(u.value));
  return duals;
}

}  // namespace rlx
