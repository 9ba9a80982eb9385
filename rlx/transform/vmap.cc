#include "rlx/transform/vmap.h"

#include <algorithm>

#include "rlx/base/error.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/batch.h"
#include "rlx/ops/build.h"
#include "rlx/ops/rules.h"

namespace rlx {

Graph vmap(const Graph& graph, const Dim& size, const std::vector<std::string>& batched) {
  if (!graph.updates().empty()) {
    user_error("vmap: the graph updates param '{}'; examples of a batch cannot share an update",
               graph.updates()[0].param);
  }
  std::vector<uint32_t> nodes;
  nodes.reserve(batched.size());
  for (const std::string& name : batched) {
    nodes.push_back(graph.inputs()[graph.input_index(name)].node);
  }
  Graph out(graph.name());
  Builder b(out);
  std::vector<Lane> leaves;
  for (Value v : graph.inputs()) {
    const bool is_batched = std::find(nodes.begin(), nodes.end(), v.node) != nodes.end();
    TensorType type = graph.type(v);
    if (is_batched) type.shape.insert(0, size);
    leaves.push_back({input(b, graph.name_of(v), type.dtype, type.shape), is_batched});
  }
  for (Value v : graph.params()) leaves.push_back({copy_node(b, graph.node(v), {})[0], false});
  const std::vector<Lane> lanes = batch_graph(b, graph, size, leaves);
  for (size_t i = 0; i < lanes.size(); ++i) {
    out.add_output(graph.outputs()[i].name, with_batch(b, lanes[i].value, lanes[i].batched, size));
  }
  return out;
}

}  // namespace rlx
