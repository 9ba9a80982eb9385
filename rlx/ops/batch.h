// Batching a graph: the walk behind vmap, and behind the batching rules of ops with bodies.
#pragma once

#include <span>
#include <vector>

#include "rlx/ir/builder.h"

namespace rlx {

// A value in the batched graph; a batched one has the batch axis in front.
struct Lane {
  Value value;
  bool batched = false;
};

// Appends the nodes of `graph` for `size` examples at once, on the lanes of its inputs, then of its
// params. Returns the lanes of its outputs.
std::vector<Lane> batch_graph(Builder& b, const Graph& graph, const Dim& size,
                              std::span<const Lane> leaves);

// For ops with a batch axis of their own: [.., size, n, ..] at `axis` as [.., size * n, ..], and
// back.
Value fold_batch(Builder& b, Value x, int64_t axis = 0);
Value unfold_batch(Builder& b, Value x, int64_t axis, const Dim& size, const Dim& n);

}  // namespace rlx
