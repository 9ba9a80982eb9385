#include "rlx/transform/jvp.h"

#include <unordered_map>

#include "rlx/ir/builder.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/build.h"
#include "rlx/ops/tangent.h"
#include "rlx/transform/leaves.h"

namespace rlx {

Graph jvp(const Graph& graph, const std::vector<std::string>& wrt) {
  const std::vector<Value> leaves = differentiable_leaves(graph, wrt);
  Graph out(graph.name());
  Builder b(out);
  // Primal leaves first, so that their positions stay; tangent inputs follow.
  std::unordered_map<Value, size_t> position;
  std::vector<Dual> bound;
  for (const auto* list : {&graph.inputs(), &graph.params()}) {
    for (Value v : *list) {
      position[v] = bound.size();
      bound.push_back({copy_node(b, graph.node(v), {})[0], {}});
    }
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    const TensorType& type = graph.type(leaves[i]);
    const Value t = input(b, fresh_input_name(out, "t_", wrt[i]), type.dtype, type.shape);
    bound[position.at(leaves[i])].tangent = t;
  }
  const std::vector<Dual> duals = push_forward(b, graph, bound);
  const size_t outputs = graph.outputs().size();
  for (size_t i = 0; i < outputs; ++i) out.add_output(graph.outputs()[i].name, duals[i].primal);
  for (size_t i = 0; i < graph.updates().size(); ++i) {
    out.add_update(graph.updates()[i].param, duals[outputs + i].primal);
  }
  for (size_t i = 0; i < outputs; ++i) {
    const auto& [primal, tangent] = duals[i];
    if (!is_differentiable(out.type(primal).dtype)) continue;
    out.add_output(fresh_output_name(out, "t_", graph.outputs()[i].name),
                   tangent.valid() ? tangent : zeros_like(b, primal));
  }
  return out;
}

}  // namespace rlx
