// Building one graph from another: the walk that all passes and transforms share.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "rlx/ir/builder.h"
#include "rlx/ir/graph.h"

namespace rlx {

// Called for every node but the leaves Input and Param, with the operands already in the builder's
// graph. Returns the values that stand for the node's results, or nothing to copy the node.
using NodeRewrite =
    std::function<std::optional<std::vector<Value>>(Builder&, const Node&, std::span<const Value>)>;

// A new graph with the same leaves, outputs and updates, node by node.
Graph rewrite(const Graph& graph, const NodeRewrite& fn);

// Appends the nodes of `body` to the builder's graph with its inputs replaced by `arguments` (in
// order) and returns its outputs. `body` has no params.
std::vector<Value> inline_graph(Builder& b, const Graph& body, std::span<const Value> arguments,
                                const NodeRewrite& fn = nullptr);

// Appends a copy of the node on new operands without inferring again (types must be unchanged).
std::vector<Value> copy_node(Builder& b, const Node& node, std::span<const Value> operands);

// Nodes that outputs and updates need, by id.
std::vector<uint8_t> live_nodes(const Graph& graph);
// How often each node's results are used, outputs and updates included.
std::vector<uint32_t> use_counts(const Graph& graph);

}  // namespace rlx
