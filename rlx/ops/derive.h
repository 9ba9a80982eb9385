// Expanding calls and the reverse sweep: below transform/ and compile/, which both need them.
#pragma once

#include <span>
#include <vector>

#include "rlx/ir/builder.h"

namespace rlx {

// The call in terms of kinds above its own in ops.def (one level), as a graph of its own: inputs
// are the operands, outputs the results. 16-bit floats are cast to f32 before and back once after,
// unless the op has bodies: these say where to round.
// Throws Error(kUnsupported) if the op is a primitive.
Graph expand_to_graph(const OpDef& op, const Attrs& attrs, std::span<const TensorType> operands);

// For every node: does it depend on a value of wrt through differentiable ops and types?
std::vector<uint8_t> active_nodes(const Graph& graph, std::span<const Value> wrt);

// The graph with every active node that has no vjp rule replaced by its decomposition, repeatedly,
// so that primal and residuals are shared. Throws if such a node has no decomposition either.
Graph expand_for_vjp(const Graph& graph, std::span<const Value> wrt);

// Reverse mode over the nodes of the builder's graph, which all have rules where active. Returns
// the cotangents of wrt, invalid where zero.
std::vector<Value> reverse_sweep(Builder& b, std::span<const Value> outputs,
                                 std::span<const Value> cotangents, std::span<const Value> wrt);

// The pullback of a graph without params, as a body: inputs are those of the graph, then cotangents
// of the outputs listed in `of`; outputs are the cotangents of the inputs listed in `wrt`, zeros
// where they are independent. All listed ones are differentiable.
GraphRef pullback(const Graph& graph, std::span<const size_t> wrt, std::span<const size_t> of);

}  // namespace rlx
