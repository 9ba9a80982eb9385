// Bounded sizes: symbols that get no value when the plan is compiled but a bound. Buffers are
// planned at the bound; each run has its own extent, and what lies beyond it in memory is never
// defined.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rlx/ir/graph.h"

namespace rlx {

// base + slope * symbol
struct LinearDim {
  int64_t base = 0, slope = 0;
  // The symbol's value for which the dim has this size, if there is one.
  std::optional<int64_t> solve(int64_t size) const;
  int64_t at(int64_t value) const;
  bool operator==(const LinearDim&) const = default;
};
// Nothing if the dim is not of that form in this symbol alone (n * n, floor(n / 2), n + m) or does
// not depend on it.
std::optional<LinearDim> linear_in(const Dim& dim, const std::string& symbol);

// base + the sum of slope * symbol, over the bounded symbols of the dim in alphabetic order.
struct LinearSum {
  int64_t base = 0;
  std::vector<std::pair<std::string, int64_t>> slopes;
};
// Nothing if the dim is not of that form.
std::optional<LinearSum> linear_sum(const Dim& dim, const SymbolBindings& bounds);

// The bounded symbols in a dim or shape, each once, in alphabetic order.
std::vector<std::string> bounded_symbols(const Dim& dim, const SymbolBindings& bounds);
std::vector<std::string> bounded_symbols(const Shape& shape, const SymbolBindings& bounds);

// The given bounds and those of the sizes that the graph sets itself (BindSize). Throws
// Error(kUser) if such a size has another source too or is mentioned before it is set,
// Error(kUnsupported) if a body sets one or if its bound has no value yet.
SymbolBindings all_bounds(const Graph& graph, const SymbolBindings& given);
// The same checks, where bounds need no value yet.
void check_set_sizes(const Graph& graph, const SymbolBindings& given);

// A graph that computes the same within the extents, whatever the memory beyond them holds, and for
// which every size may be replaced by its bound: operands whose tail would reach a result are
// filled (FillTail), means divide by the extent, windows at a place that depends on an extent
// become DynamicSlice. Throws Error(kUnsupported) where an op has no rule for a bounded axis.
Graph mask_bounded(const Graph& graph, const SymbolBindings& bounds);

}  // namespace rlx
