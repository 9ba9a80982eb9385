#include <optional>

#include "rlx/base/checked.h"
#include "rlx/base/error.h"
#include "rlx/compile/bodies.h"
#include "rlx/compile/passes.h"
#include "rlx/ir/bind_size.h"
#include "rlx/ir/leaf.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/build.h"

namespace rlx {

RLX_USE_OP(Expand);
RLX_USE_OP(Custom);

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

// Bytes of the results, if the call may be folded.
std::optional<int64_t> foldable(const Builder& b, const Node& n, std::span<const Value> operands,
                                int64_t max_bytes) {
  if (n.op->has(kLeaf) || n.op->has(kRandom) || operands.empty()) return std::nullopt;
  if (binds_size(n)) return std::nullopt;
  if (n.op == &kCustomOp) return std::nullopt;  // a kernel of the session, of any cost
  if (n.op == &kExpandOp) return std::nullopt;  // free as a view, expensive as data
  for (Value v : operands) {
    if (!is_constant(b.node_of(v)) || !b.shape(v).is_static()) return std::nullopt;
    // A splat is one element, but a kernel may want it as an array.
    const auto& c = b.node_of(v).attrs.as<ConstantAttrs>();
    if (c.splat && byte_size(b.dtype(v), b.shape(v).static_dims()) > max_bytes) return std::nullopt;
  }
  int64_t bytes = 0;
  for (const TensorType& t : n.results) {
    if (!t.shape.is_static()) return std::nullopt;
    bytes = checked_add(bytes, byte_size(t.dtype, t.shape.static_dims()));
  }
  return bytes <= max_bytes ? std::optional(bytes) : std::nullopt;
}

std::vector<Array> evaluate(const FoldOptions& options, const Builder& b, const Node& n,
                            std::span<const Value> operands) {
  std::vector<Array> arrays;
  for (Value v : operands) arrays.push_back(array_of(b.node_of(v).attrs.as<ConstantAttrs>()));
  try {
    return options.evaluate(*n.op, n.attrs, arrays);
  } catch (const Error& e) {
    if (n.label.empty()) throw;
    throw e.with_context("at " + n.label);
  }
}

}  // namespace

Graph fold_constants(const Graph& graph, const FoldOptions& options) {
  if (!options.evaluate) return graph;
  int64_t total = 0;
  GraphPass in_bodies;
  // Loops are not run: they may not end.
  const NodeRewrite fold =
      [&](Builder& b, const Node& n,
          std::span<const Value> operands) -> std::optional<std::vector<Value>> {
    if (n.op->has(kControl)) return copy_with_bodies(b, n, operands, in_bodies);
    const std::optional<int64_t> bytes = foldable(b, n, operands, options.max_bytes);
    if (!bytes || total + *bytes > options.max_total_bytes) return std::nullopt;
    total += *bytes;
    std::vector<Value> values;
    for (const Array& a : evaluate(options, b, n, operands)) values.push_back(constant(b, a));
    return values;
  };
  in_bodies = [&](const Graph& body) { return rewrite(body, fold); };
  return rewrite(graph, fold);
}

}  // namespace rlx
