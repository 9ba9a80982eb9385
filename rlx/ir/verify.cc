#include "rlx/ir/verify.h"

#include "rlx/base/error.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/op.h"

namespace rlx {
namespace {

void verify_node(const Graph& graph, uint32_t id) {
  const Node& n = graph.node(id);
  if (!n.op) internal_error("it has no op");
  std::vector<TensorType> operands;
  for (Value v : n.operands) {
    if (v.node >= id) internal_error("it uses node {}, which is not earlier", v.node);
    if (v.index >= graph.node(v.node).results.size()) {
      internal_error("it uses result {} of node {}, which has {}", v.index, v.node,
                     graph.node(v.node).results.size());
    }
    operands.push_back(graph.type(v));
  }
  const InferredCall inferred = infer_call(*n.op, n.attrs, operands);
  if (!(inferred.attrs == n.attrs)) internal_error("its attributes are not in normal form");
  if (inferred.results.size() != n.results.size()) {
    internal_error("it has {} results, inference gives {}", n.results.size(),
                   inferred.results.size());
  }
  for (size_t i = 0; i < n.results.size(); ++i) {
    if (inferred.results[i] != n.results[i]) {
      internal_error("result {} is recorded as {}, inference gives {}", i, n.results[i].to_string(),
                     inferred.results[i].to_string());
    }
  }
  for (const Field& f : n.attrs.table()->fields) {
    if (f.type != FieldType::kGraph) continue;
    const FieldValue value = f.get(n.attrs.get());
    const auto* body = std::get_if<GraphRef>(&value);
    if (body && *body) verify(**body, f.name);
  }
}

void check_value(const Graph& graph, Value v, std::string_view where, std::string_view what) {
  if (v.node >= graph.size() || v.index >= graph.node(v.node).results.size()) {
    internal_error("{}: {} is not a value of the graph", where, what);
  }
}

}  // namespace

// Unique names and mutable updated params need no check: Graph refuses others as they come.
void verify(const Graph& graph, std::string_view after) {
  const std::string where =
      fmt::format("graph '{}'{}{}", graph.name(), after.empty() ? "" : " after ", after);
  for (uint32_t id = 0; id < graph.size(); ++id) {
    try {
      verify_node(graph, id);
    } catch (const Error& e) {
      const Node& n = graph.node(id);
      throw Error(ErrorKind::kInternal, fmt::format("{}: node {} ({}): {}", where, id,
                                                    n.op ? n.op->name : "no op", e.message()));
    }
  }
  for (const Output& o : graph.outputs()) check_value(graph, o.value, where, "output " + o.name);
  for (const Update& u : graph.updates()) {
    check_value(graph, u.value, where, "the update of " + u.param);
    const Value leaf = graph.params()[graph.param_index(u.param)];
    if (graph.type(leaf) != graph.type(u.value)) {
      internal_error("{}: the update of '{}' has another type", where, u.param);
    }
  }
}

}  // namespace rlx
