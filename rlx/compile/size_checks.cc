#include "rlx/compile/size_checks.h"

#include <algorithm>

#include "rlx/base/checked.h"
#include "rlx/base/error.h"
#include "rlx/compile/bounds.h"
#include "rlx/compile/plan.h"
#include "rlx/ir/bind_size.h"
#include "rlx/ir/op.h"

namespace rlx {
namespace {

class Finder {
 public:
  explicit Finder(const SymbolBindings& bounds) : bounds_(bounds) {
    for (const auto& [name, bound] : bounds) at_least_[name] = 0;
  }

  void graph(const Graph& g) {
    for (const Node& n : g.nodes()) {
      const auto check = [&](const Dim& d) { dim(d, *n.op); };
      for (const TensorType& t : n.results) std::ranges::for_each(t.shape, check);
      for_each_size(n.attrs, check);
      for_each_body(n.attrs, [&](const Graph& body) { graph(body); });
    }
  }

  std::vector<SizeCheck> found;

 private:
  void dim(const Dim& d, const OpDef& op) {
    if (bounded_symbols(d, bounds_).empty() || d.evaluate(at_least_) >= 0) return;
    const std::string text = d.to_string();
    if (std::ranges::find(found, text, &SizeCheck::size) != found.end()) return;
    const auto sum = linear_sum(d, bounds_);
    if (!sum) refuse(d, op);
    SizeCheck check{sum->base, {}, text};
    for (const auto& [symbol, slope] : sum->slopes) {
      if (slope <= 0) refuse(d, op);
      const auto position = std::distance(bounds_.begin(), bounds_.find(symbol));
      check.slopes.emplace_back(uint32_t(position), slope);
    }
    found.push_back(std::move(check));
  }

  [[noreturn]] static void refuse(const Dim& d, const OpDef& op) {
    fail(ErrorKind::kUnsupported,
         "{}: the size {} may be negative, and is no sum of multiples of bounded sizes", op.name,
         d.to_string());
  }

  const SymbolBindings& bounds_;
  SymbolBindings at_least_;
};

}  // namespace

std::vector<SizeCheck> sizes_to_check(const Graph& graph, const SymbolBindings& bounds) {
  Finder finder(bounds);
  if (!bounds.empty()) finder.graph(graph);
  return std::move(finder.found);
}

void check_sizes(const Plan& plan, std::span<const int64_t> extents) {
  for (const SizeCheck& c : plan.size_checks) {
    int64_t size = c.base;
    const auto unknown = [&](const auto& part) { return extents[part.first] < 0; };
    if (std::ranges::any_of(c.slopes, unknown)) continue;
    for (const auto& [symbol, slope] : c.slopes) {
      size = checked_add(size, checked_mul(slope, extents[symbol]));
    }
    if (size >= 0) continue;
    std::string values;
    for (const auto& [symbol, slope] : c.slopes) {
      values += fmt::format("{}{} = {}", values.empty() ? "" : ", ", plan.symbols[symbol].name,
                            extents[symbol]);
    }
    user_error("the size {} in '{}' is {}, with {}", c.size, plan.name, size, values);
  }
}

}  // namespace rlx
