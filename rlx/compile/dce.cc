#include "rlx/compile/bodies.h"
#include "rlx/compile/passes.h"
#include "rlx/ir/leaf.h"
#include "rlx/ir/rewrite.h"

namespace rlx {

Graph drop_dead(const Graph& graph) {
  const std::vector<uint8_t> live = live_nodes(graph);
  Graph out(graph.name());
  Builder b(out);
  std::vector<std::vector<Value>> map(graph.size());
  for (uint32_t id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    const bool is_signature = is_signature_leaf(n);
    if (!live[id] && !is_signature) continue;
    std::vector<Value> operands;
    for (Value v : n.operands) operands.push_back(map[v.node][v.index]);
    map[id] = n.op->has(kControl) ? copy_with_bodies(b, n, operands, drop_dead)
                                  : copy_node(b, n, operands);
  }
  for (const Output& o : graph.outputs()) out.add_output(o.name, map[o.value.node][o.value.index]);
  for (const Update& u : graph.updates()) out.add_update(u.param, map[u.value.node][u.value.index]);
  return out;
}

}  // namespace rlx
