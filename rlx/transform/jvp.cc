#include "rlx/transform/jvp.h"

#include "rlx/base/error.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/leaf.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/build.h"
#include "rlx/ops/derive.h"
#include "rlx/transform/leaves.h"

namespace rlx {
namespace {

// Walks a graph into a builder, carrying a tangent (invalid: zero) beside every value.
class ForwardDriver {
 public:
  ForwardDriver(Builder& b, const Graph& source)
      : b_(b), source_(source), of_(source.size()), label_(b.label()) {}

  struct Dual {
    Value primal, tangent;
  };
  void bind(uint32_t node, Value primal, Value tangent) { of_[node] = {{primal, tangent}}; }
  Dual get(Value v) const { return of_[v.node][v.index]; }

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
    const std::vector<Value> results = copy_node(b_, n, primals);
    std::vector<Value> out(results.size());
    if (!zero) out = n.op->jvp(b_, {*n.op, n.attrs, primals, results}, tangents);
    if (out.size() != results.size()) {
      internal_error("the jvp of {} gave {} tangents for {} results", n.op->name, out.size(),
                     results.size());
    }
    std::vector<Dual> duals;
    for (size_t i = 0; i < results.size(); ++i) {
      if (out[i].valid() && b_.type(out[i]) != b_.type(results[i])) {
        internal_error("the jvp of {} gave {} for a result of type {}", n.op->name,
                       b_.type(out[i]).to_string(), b_.type(results[i]).to_string());
      }
      duals.push_back({results[i], out[i]});
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
      inner.bind(body.inputs()[i].node, primals[i], tangents[i]);
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

}  // namespace

Graph jvp(const Graph& graph, const std::vector<std::string>& wrt) {
  const std::vector<Value> leaves = differentiable_leaves(graph, wrt);
  Graph out(graph.name());
  Builder b(out);
  ForwardDriver driver(b, graph);
  // Primal leaves first, so that their positions stay; tangent inputs follow.
  std::vector<std::pair<uint32_t, Value>> bound;
  for (const auto* list : {&graph.inputs(), &graph.params()}) {
    for (Value v : *list) bound.push_back({v.node, copy_node(b, graph.node(v), {})[0]});
  }
  for (const auto& [node, primal] : bound) driver.bind(node, primal, {});
  for (size_t i = 0; i < leaves.size(); ++i) {
    const TensorType type = graph.type(leaves[i]);
    const Value t = input(b, fresh_input_name(out, "t_", wrt[i]), type.dtype, type.shape);
    driver.bind(leaves[i].node, driver.get(leaves[i]).primal, t);
  }
  driver.walk();
  for (const Output& o : graph.outputs()) out.add_output(o.name, driver.get(o.value).primal);
  for (const Update& u : graph.updates()) out.add_update(u.param, driver.get(u.value).primal);
  for (const Output& o : graph.outputs()) {
    const auto dual = driver.get(o.value);
    if (!is_differentiable(out.type(dual.primal).dtype)) continue;
    out.add_output(fresh_output_name(out, "t_", o.name),
                   dual.tangent.valid() ? dual.tangent : zeros_like(b, dual.primal));
  }
  return out;
}

}  // namespace rlx
