#include "rlx/base/checked.h"
#include "rlx/compile/passes.h"
#include "rlx/ir/leaf.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/build.h"

namespace rlx {
namespace {

// The array behind a Constant; a splat is a view with zero strides, whatever its size.
Array array_of(const ConstantAttrs& c) {
  if (!c.splat) return c.value;
  const Dims shape = c.shape.static_dims();
  Array element = c.value;
  return Array::borrow(element.dtype(), const_cast<void*>(element.raw()), shape,
                       Dims(shape.size(), 0), std::make_shared<Array>(element),
                       /*writable=*/false);
}

bool foldable(const Builder& b, const Node& n, std::span<const Value> operands, int64_t max_bytes) {
  if (n.op->has(kLeaf) || n.op->has(kRandom) || operands.empty()) return false;
  if (n.op->name == "Expand") return false;  // free as a view, expensive as data
  for (Value v : operands) {
    if (!b.node_of(v).op->has(kLeaf) || b.node_of(v).op->name != "Constant") return false;
    if (!b.shape(v).is_static()) return false;
  }
  int64_t bytes = 0;
  for (const TensorType& t : n.results) {
    if (!t.shape.is_static()) return false;
    bytes = checked_add(bytes, byte_size(t.dtype, t.shape.static_dims()));
  }
  return bytes <= max_bytes;
}

}  // namespace

Graph fold_constants(const Graph& graph, const FoldOptions& options) {
  if (!options.evaluate) return graph;
  return rewrite(graph,
                 [&](Builder& b, const Node& n,
                     std::span<const Value> operands) -> std::optional<std::vector<Value>> {
                   if (!foldable(b, n, operands, options.max_bytes)) return std::nullopt;
                   std::vector<Array> arrays;
                   for (Value v : operands)
                     arrays.push_back(array_of(b.node_of(v).attrs.as<ConstantAttrs>()));
                   std::vector<Value> values;
                   for (const Array& a : options.evaluate(*n.op, n.attrs, arrays)) {
                     values.push_back(constant(b, a));
                   }
                   return values;
                 });
}

}  // namespace rlx
