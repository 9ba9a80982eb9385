#include "rlx/compile/passes.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/rewrite.h"

namespace rlx {

Attrs substitute_symbols(const Attrs& attrs, const SymbolBindings& bindings) {
  Attrs out = attrs;
  for (const Field& f : attrs.table()->fields) {
    const bool has_sizes = f.type == FieldType::kDim || f.type == FieldType::kShape ||
                           f.type == FieldType::kTypes || f.type == FieldType::kGraph;
    if (!has_sizes) continue;
    FieldValue v = f.get(attrs.get());
    if (const auto* dim = std::get_if<Dim>(&v)) {
      if (!dim->is_static()) out = out.with(f.name, dim->substitute(bindings));
    } else if (const auto* shape = std::get_if<Shape>(&v)) {
      if (!shape->is_static()) out = out.with(f.name, shape->substitute(bindings));
    } else if (auto* types = std::get_if<std::vector<TensorType>>(&v)) {
      for (TensorType& t : *types) t.shape = t.shape.substitute(bindings);
      out = out.with(f.name, std::move(v));
    } else if (const auto* body = std::get_if<GraphRef>(&v); body && *body) {
      out = out.with(f.name, std::make_shared<const Graph>(substitute_symbols(**body, bindings)));
    }
  }
  return out;
}

TensorType substitute_symbols(const TensorType& type, const SymbolBindings& bindings) {
  return {type.dtype, type.shape.substitute(bindings)};
}

Graph substitute_symbols(const Graph& graph, const SymbolBindings& bindings) {
  Graph out(graph.name());
  Builder b(out);
  std::vector<std::vector<Value>> map(graph.size());
  for (uint32_t id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    std::vector<Value> operands;
    for (Value v : n.operands) operands.push_back(map[v.node][v.index]);
    b.set_label(n.label);
    map[id] = b.call(*n.op, substitute_symbols(n.attrs, bindings), operands);
  }
  for (const Output& o : graph.outputs()) out.add_output(o.name, map[o.value.node][o.value.index]);
  for (const Update& u : graph.updates()) out.add_update(u.param, map[u.value.node][u.value.index]);
  return out;
}

}  // namespace rlx
