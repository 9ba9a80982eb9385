// What fusion works on: a graph whose nodes are gathered in units, each to become one call.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rlx/ir/graph.h"

namespace rlx {

// The last nodes of units by their first: which unit that begins first ends at a node or behind it?
class SpanTree {
 public:
  explicit SpanTree(uint32_t size);
  void set(uint32_t first, uint32_t last);
  void erase(uint32_t first) { set(first, 0); }
  // The smallest `first` whose `last` is not below the node; the node itself if there is none
  // smaller.
  uint32_t first_over(uint32_t node) const;

 private:
  uint32_t leaves_ = 1;
  std::vector<uint32_t> last_;  // a heap of maxima; 0: no span
};

// Units are numbered by their first node. A unit may be formed if no path leaves it and comes back,
// be it along operands or from a call that sets a size to those that mention it.
class GroupUnits {
 public:
  explicit GroupUnits(const Graph& graph);

  const Graph& graph() const { return graph_; }
  uint32_t unit_of(uint32_t node) const { return unit_[node]; }
  // In ascending order; empty for a number that is no unit's.
  const std::vector<uint32_t>& members(uint32_t unit) const { return members_[unit]; }
  // The values outside that its members read, in the order of first use.
  std::vector<Value> operands(std::span<const uint32_t> units) const;
  // The values of its members that others read, or outputs and updates.
  std::vector<Value> results(std::span<const uint32_t> units) const;
  // The calls that set a size which the node mentions.
  std::span<const uint32_t> setters(uint32_t node) const {
    return setters_.empty() ? std::span<const uint32_t>() : setters_[node];
  }
  // Nodes that read the value, and whether an output or update does.
  const std::vector<uint32_t>& readers(uint32_t node) const { return readers_[node]; }
  bool is_kept(uint32_t node) const { return kept_[node] != 0; }

  // Whether these units as one keep the graph free of cycles.
  bool is_convex(std::span<const uint32_t> units) const;
  // Whether the node needs a value of one of the units.
  bool depends(uint32_t node, std::span<const uint32_t> units) const;

  // Makes one of them, under the smallest number, which is returned.
  uint32_t merge(std::span<const uint32_t> units);
  // Makes these members a unit, and the others another.
  void split(uint32_t unit, const std::vector<uint32_t>& part);
  // Every member becomes a unit of its own again.
  void dissolve(uint32_t unit);

 private:
  void find_setters();
  void push_needs(uint32_t node, std::vector<uint32_t>& stack) const;
  bool reaches(std::vector<uint32_t> stack, std::span<const uint32_t> units) const;
  uint32_t closed_below(uint32_t node) const;

  const Graph& graph_;
  std::vector<uint32_t> unit_;
  std::vector<std::vector<uint32_t>> members_;
  SpanTree spans_;  // of units with several members
  std::vector<std::vector<uint32_t>> readers_;
  std::vector<std::vector<uint32_t>> setters_;  // empty if the graph sets no size
  std::vector<uint8_t> kept_;
  mutable std::vector<uint32_t> seen_;  // by unit: the search that came by last
  mutable uint32_t search_ = 0;
};

}  // namespace rlx
