#include "rlx/compile/size_checks.h"

#include <algorithm>

#include "rlx/base/checked.h"
#include "rlx/base/error.h"
#include "rlx/compile/bounds.h"
#include "rlx/compile/plan.h"
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
      for (const TensorType& t : n.results) shape(t.shape, *n.op);
      for (const Field& field : n.attrs.table()->fields) {
        const FieldValue value = field.get(n.attrs.get());
        if (const auto* d = std::get_if<Dim>(&value)) dim(*d, *n.op);
        if (const auto* s = std::get_if<Shape>(&value)) shape(*s, *n.op);
        if (const auto* body = std::get_if<GraphRef>(&value); body && *body) graph(**body);
      }
    }
  }

  std::vector<SizeCheck> found;

 private:
  void shape(const Shape& s, const OpDef& op) {
    for (const Dim& d : s) dim(d, op);
  }

  void dim(const Dim& d, const OpDef& op) {
    const std::vector<std::string> symbols = bounded_symbols(d, bounds_);
    if (symbols.empty()) return;
    SizeCheck check{d.evaluate(at_least_), {}, d.to_string()};
    if (check.base >= 0) return;
    const auto known = [&](const SizeCheck& c) { return c.size == check.size; };
    if (std::ranges::any_of(found, known)) return;
    Dim sum = check.base;
    for (const std::string& symbol : symbols) {
      SymbolBindings one = at_least_;
      one[symbol] = 1;
      const int64_t slope = checked_sub(d.evaluate(one), check.base);
      const auto position = uint32_t(std::distance(bounds_.begin(), bounds_.find(symbol)));
      check.slopes.emplace_back(position, slope);
      sum = sum + slope * Dim::symbol(symbol);
      if (slope <= 0) refuse(d, op);
    }
    if (sum != d) refuse(d, op);
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
