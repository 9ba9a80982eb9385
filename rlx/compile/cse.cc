#include <unordered_map>

#include "rlx/compile/bodies.h"
#include "rlx/compile/passes.h"
#include "rlx/ir/rewrite.h"

namespace rlx {
namespace {

struct CallKey {
  const OpDef* op;
  Attrs attrs;
  std::vector<Value> operands;
  bool operator==(const CallKey& o) const {
    return op == o.op && operands == o.operands && attrs == o.attrs;
  }
};

struct CallHash {
  size_t operator()(const CallKey& k) const {
    size_t h = std::hash<const void*>()(k.op) ^ k.attrs.hash();
    for (Value v : k.operands) h = h * 1000003 + std::hash<Value>()(v);
    return h;
  }
};

}  // namespace

Graph merge_common(const Graph& graph) {
  std::unordered_map<CallKey, std::vector<Value>, CallHash> seen;
  const NodeRewrite merge = [&](Builder& b, const Node& given,
                                std::span<const Value> operands) -> std::vector<Value> {
    Node mapped;
    if (given.op->has(kControl)) mapped = map_bodies(given, merge_common);
    const Node& n = given.op->has(kControl) ? mapped : given;
    CallKey key{n.op, n.attrs, {operands.begin(), operands.end()}};
    if (n.op->commutes && n.op->commutes(n.attrs) && key.operands.size() >= 2 &&
        key.operands[1] < key.operands[0]) {
      // a + b and b + a are one call only where swapping changes nothing, shapes
      // included.
      if (b.type(key.operands[0]) == b.type(key.operands[1])) {
        std::swap(key.operands[0], key.operands[1]);
      }
    }
    const auto [it, fresh] = seen.try_emplace(std::move(key));
    if (fresh) it->second = copy_node(b, n, operands);
    return it->second;
  };
  return rewrite(graph, merge);
}

}  // namespace rlx
