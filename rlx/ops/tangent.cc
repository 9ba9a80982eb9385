#include "rlx/ops/tangent.h"

#include "rlx/base/error.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/derive.h"
#include "rlx/ops/graph_walk.h"

namespace rlx {
namespace {

// Carries a tangent (invalid: zero) beside every value.
class TangentWalk final : public GraphWalk<Dual> {
 public:
  TangentWalk(Builder& b, const Graph& source) : GraphWalk(b, source) {}

 private:
  std::vector<Dual> step(const Node& n) override {
    std::vector<Value> primals, tangents;
    bool any = false;
    for (Value v : n.operands) {
      primals.push_back(get(v).primal);
      tangents.push_back(get(v).tangent);
      any |= tangents.back().valid();
    }
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
    std::vector<Dual> duals;
    for (size_t i = 0; i < primals.size(); ++i) duals.push_back({primals[i], tangents[i]});
    return TangentWalk(b_, body).run(duals);
  }
};

}  // namespace

std::vector<Dual> push_forward(Builder& b, const Graph& graph, std::span<const Dual> leaves) {
  TangentWalk walk(b, graph);
  std::vector<Dual> duals = walk.run(leaves);
  for (const Update& u : graph.updates()) duals.push_back(walk.get(u.value));
  return duals;
}

}  // namespace rlx
