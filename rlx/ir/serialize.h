// Binary form of graphs, for files. Little-endian:
//   header, 64 bytes: "RLXGRAPH", u32 version, u32 zero, u64 file size, u64 offset of the strings
//   graph:  name, nodes (op, label, attributes by name, operands, result types), outputs, updates
//   strings: u32 count, then each u32 length and bytes
// Ops, attributes, dtypes and enumerators stand in the file by name, so that it outlives changes of
// their order; attributes equal to their default are left out. Raw tensors begin at multiples of 64
// bytes. Bodies are graphs in place of a value.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "rlx/ir/graph.h"
#include "rlx/ir/text.h"

namespace rlx {

std::vector<std::byte> serialize(const Graph& graph);
// Trusts nothing: counts and lengths are checked against what is left before memory is taken, types
// are inferred again and compared. Throws Error(kIo) with the byte's position.
Graph deserialize(std::span<const std::byte> bytes, OpLookup lookup);

// Throw Error(kIo) with the path.
void save_graph(const Graph& graph, const std::string& path);
Graph load_graph(const std::string& path, OpLookup lookup);

}  // namespace rlx
