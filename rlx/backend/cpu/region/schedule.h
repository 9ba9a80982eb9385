// The order in which a program computes the nodes of a body.
#pragma once

#include <cstdint>
#include <vector>

#include "rlx/backend/cpu/region/program.h"

namespace rlx::cpu::region {

struct ScheduledResult {
  uint32_t node = 0;
  DType stored = DType::kF32;
};

struct Schedule {
  std::vector<RegionInput> inputs;       // as the program reads them
  std::vector<ScheduledResult> results;  // their roots
  std::vector<uint32_t> roots;           // by node: what it forwards, mostly itself
  std::vector<uint32_t> order;           // of what is to compute; leaves are not in it
  std::vector<uint32_t> uses;            // by node: reads by nodes in order and results
  // By node: a product of leaves that its only reader, a sum or difference, computes along.
  std::vector<uint8_t> folded;
  // Position of the last read of an input on which result 0 may lie: it is not written before.
  size_t last_read = 0;
};

bool is_leaf(const Node& node);

// Few values are alive at any time: operands that need many are computed first.
Schedule schedule(const Graph& body, const RegionOptions& options, bool wide, bool as_columns);

// The values that a node reads: roots, and the operands of folded products in their place.
std::vector<uint32_t> operands_of(const Graph& body, const Schedule& s, uint32_t id);

}  // namespace rlx::cpu::region
