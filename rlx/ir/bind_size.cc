#include "rlx/ir/bind_size.h"

#include <algorithm>

#include "rlx/ir/op.h"

namespace rlx {
bool binds_size(const Node& node) { return (node.op->flags & kBindsSize) != 0; }

bool binds_sizes(const Graph& graph) {
  return std::ranges::any_of(
      graph.nodes(), [](const Node& n) { return binds_size(n) || body_that_binds(n) != nullptr; });
}

const Graph* body_that_binds(const Node& node) {
  const Graph* found = nullptr;
  for_each_body(node.attrs, [&](const Graph& body) {
    if (!found && binds_sizes(body)) found = &body;
  });
  return found;
}

void for_each_size(const Attrs& attrs, const std::function<void(const Dim&)>& f) {
  for (const Field& field : attrs.table()->fields) {
    const bool has_sizes = field.type == FieldType::kDim || field.type == FieldType::kShape ||
                           field.type == FieldType::kTypes;
    if (!has_sizes) continue;
    const FieldValue value = field.get(attrs.get());
    if (const auto* dim = std::get_if<Dim>(&value)) f(*dim);
    if (const auto* shape = std::get_if<Shape>(&value)) std::ranges::for_each(*shape, f);
    if (const auto* types = std::get_if<std::vector<TensorType>>(&value)) {
      for (const TensorType& t : *types) std::ranges::for_each(t.shape, f);
    }
  }
}

void for_each_body(const Attrs& attrs, const std::function<void(const Graph&)>& f) {
  for (const Field& field : attrs.table()->fields) {
    if (field.type != FieldType::kGraph) continue;
    const FieldValue value = field.get(attrs.get());
    const auto* body = std::get_if<GraphRef>(&value);
    if (body && *body) f(**body);
  }
}

void collect_symbols(const Attrs& attrs, std::vector<std::string>& out) {
  for_each_size(attrs, [&](const Dim& d) { d.collect_symbols(out); });
  collect_body_symbols(attrs, out);
}

void collect_body_symbols(const Attrs& attrs, std::vector<std::string>& out) {
  for_each_body(attrs, [&](const Graph& body) {
    for (const Node& n : body.nodes()) collect_symbols(n, out);
  });
}

void collect_symbols(const Node& node, std::vector<std::string>& out) {
  for (const TensorType& t : node.results) {
    for (const Dim& d : t.shape) d.collect_symbols(out);
  }
  collect_symbols(node.attrs, out);
}

MentionedSizes::MentionedSizes(const Graph& graph)
    : any_set_(std::ranges::any_of(graph.nodes(), binds_size)) {}

void MentionedSizes::add(const Node& needed) {
  if (any_set_) collect_symbols(needed, symbols_);
}

bool MentionedSizes::needs(const Node& node) const {
  return any_set_ && binds_size(node) &&
         std::ranges::find(symbols_, node.attrs.as<BindSizeAttrs>().symbol) != symbols_.end();
}

}  // namespace rlx
