#include "rlx/compile/bodies.h"

#include "rlx/ir/rewrite.h"

namespace rlx {

Node map_bodies(const Node& node, const GraphPass& pass) {
  Node copy = node;
  for (const Field& f : node.attrs.table()->fields) {
    if (f.type != FieldType::kGraph) continue;
    const FieldValue value = f.get(node.attrs.get());
    const auto* body = std::get_if<GraphRef>(&value);
    if (!body || !*body) continue;
    copy.attrs = copy.attrs.with(f.name, GraphRef(std::make_shared<const Graph>(pass(**body))));
  }
  return copy;
}

std::vector<Value> copy_with_bodies(Builder& b, const Node& node, std::span<const Value> operands,
                                    const GraphPass& pass) {
  return copy_node(b, map_bodies(node, pass), operands);
}

}  // namespace rlx
