#include "rlx/compile/group_units.h"

#include <algorithm>
#include <map>
#include <string>

#include "rlx/ir/bind_size.h"

namespace rlx {
namespace {

bool contains(std::span<const uint32_t> list, uint32_t x) {
  return std::find(list.begin(), list.end(), x) != list.end();
}

}  // namespace

SpanTree::SpanTree(uint32_t size) {
  while (leaves_ < size) leaves_ *= 2;
  last_.assign(size_t(leaves_) * 2, 0);
}

void SpanTree::set(uint32_t first, uint32_t last) {
  size_t i = size_t(leaves_) + first;
  last_[i] = last;
  for (i /= 2; i > 0; i /= 2) last_[i] = std::max(last_[2 * i], last_[2 * i + 1]);
}

uint32_t SpanTree::first_over(uint32_t node) const {
  if (node == 0 || last_[1] < node) return node;
  size_t i = 1;
  while (i < leaves_) {
    i *= 2;
    if (last_[i] < node) ++i;
  }
  return std::min(node, uint32_t(i - leaves_));
}

GroupUnits::GroupUnits(const Graph& graph)
    : graph_(graph),
      unit_(graph.size()),
      members_(graph.size()),
      spans_(uint32_t(graph.size())),
      readers_(graph.size()),
      kept_(graph.size(), 0),
      seen_(graph.size(), 0) {
  for (uint32_t id = 0; id < graph.size(); ++id) {
    unit_[id] = id;
    members_[id] = {id};
    for (Value v : graph.node(id).operands) {
      std::vector<uint32_t>& list = readers_[v.node];
      if (list.empty() || list.back() != id) list.push_back(id);
    }
  }
  for (const Output& o : graph.outputs()) kept_[o.value.node] = 1;
  for (const Update& u : graph.updates()) kept_[u.value.node] = 1;
  find_setters();
}

void GroupUnits::find_setters() {
  std::map<std::string, uint32_t> setters;
  for (uint32_t id = 0; id < graph_.size(); ++id) {
    const Node& n = graph_.node(id);
    if (binds_size(n)) setters[n.attrs.as<BindSizeAttrs>().symbol] = id;
  }
  if (setters.empty()) return;
  setters_.resize(graph_.size());
  for (uint32_t id = 0; id < graph_.size(); ++id) {
    std::vector<std::string> symbols;
    collect_symbols(graph_.node(id), symbols);
    for (const std::string& symbol : symbols) {
      const auto it = setters.find(symbol);
      if (it != setters.end() && it->second != id && !contains(setters_[id], it->second)) {
        setters_[id].push_back(it->second);
      }
    }
  }
}

std::vector<Value> GroupUnits::operands(std::span<const uint32_t> units) const {
  std::vector<Value> found;
  for (uint32_t u : units) {
    for (uint32_t m : members_[u]) {
      for (Value v : graph_.node(m).operands) {
        if (contains(units, unit_[v.node])) continue;
        if (std::find(found.begin(), found.end(), v) == found.end()) found.push_back(v);
      }
    }
  }
  return found;
}

std::vector<Value> GroupUnits::results(std::span<const uint32_t> units) const {
  std::vector<Value> found;
  for (uint32_t u : units) {
    for (uint32_t m : members_[u]) {
      const auto& readers = readers_[m];
      if (is_kept(m) || std::any_of(readers.begin(), readers.end(),
                                    [&](uint32_t r) { return !contains(units, unit_[r]); })) {
        found.push_back({m, 0});
      }
    }
  }
  return found;
}

// The largest number up to `node` that no unit spans: nodes below need only nodes below.
uint32_t GroupUnits::closed_below(uint32_t node) const {
  for (;;) {
    const uint32_t first = spans_.first_over(node);
    if (first == node) return node;
    node = first;
  }
}

void GroupUnits::push_needs(uint32_t node, std::vector<uint32_t>& stack) const {
  for (Value v : graph_.node(node).operands) stack.push_back(v.node);
  stack.insert(stack.end(), setters(node).begin(), setters(node).end());
}

// Whether a value on the stack, or one that it needs, is computed by the units.
bool GroupUnits::reaches(std::vector<uint32_t> stack, std::span<const uint32_t> units) const {
  uint32_t first = ~uint32_t(0);
  for (uint32_t u : units) first = std::min(first, members_[u].front());
  first = closed_below(first);
  ++search_;
  while (!stack.empty()) {
    const uint32_t u = unit_[stack.back()];
    stack.pop_back();
    if (u < first || seen_[u] == search_) continue;
    seen_[u] = search_;
    if (contains(units, u)) return true;
    for (uint32_t m : members_[u]) push_needs(m, stack);
  }
  return false;
}

bool GroupUnits::is_convex(std::span<const uint32_t> units) const {
  std::vector<uint32_t> stack;
  for (Value v : operands(units)) stack.push_back(v.node);
  for (uint32_t u : units) {
    for (uint32_t m : members_[u]) {
      stack.insert(stack.end(), setters(m).begin(), setters(m).end());
    }
  }
  return !reaches(std::move(stack), units);
}

bool GroupUnits::depends(uint32_t node, std::span<const uint32_t> units) const {
  return reaches({node}, units);
}

uint32_t GroupUnits::merge(std::span<const uint32_t> units) {
  std::vector<uint32_t> all;
  for (uint32_t u : units) {
    all.insert(all.end(), members_[u].begin(), members_[u].end());
    members_[u].clear();
    spans_.erase(u);
  }
  std::sort(all.begin(), all.end());
  const uint32_t unit = all.front();
  for (uint32_t m : all) unit_[m] = unit;
  if (all.size() > 1) spans_.set(unit, all.back());
  members_[unit] = std::move(all);
  return unit;
}

void GroupUnits::split(uint32_t unit, const std::vector<uint32_t>& part) {
  std::vector<uint32_t> rest = members_[unit];
  std::erase_if(rest, [&](uint32_t m) { return contains(part, m); });
  dissolve(unit);
  merge(part);
  merge(rest);
}

void GroupUnits::dissolve(uint32_t unit) {
  spans_.erase(unit);
  for (uint32_t m : std::vector<uint32_t>(std::move(members_[unit]))) {
    unit_[m] = m;
    members_[m] = {m};
  }
}

}  // namespace rlx
