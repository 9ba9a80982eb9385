// Sizes that are negative where a bounded symbol is small: n - 3 of fewer than three rows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rlx/ir/graph.h"

namespace rlx {

struct Plan;

// base + the sum of slope * symbol, slopes above 0
struct SizeCheck {
  int64_t base = 0;
  std::vector<std::pair<uint32_t, int64_t>> slopes;  // by position in Plan::symbols
  std::string size;
};

// The sizes in results and attributes, in bodies too, that are below 0 for some values of the
// bounded symbols, each once. Throws Error(kUnsupported) if one is no sum of multiples of them.
std::vector<SizeCheck> sizes_to_check(const Graph& graph, const SymbolBindings& bounds);

// Throws Error(kUser) if a size of the plan is negative under these values of Plan::symbols. Those
// that are not set yet stand at their bounds: no size that will be right is refused. One below 0 is
// that of a symbol which nothing in the plan needs.
void check_sizes(const Plan& plan, std::span<const int64_t> extents);

}  // namespace rlx
