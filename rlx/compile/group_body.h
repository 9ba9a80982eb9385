// From units to calls: the bodies of regions and groups.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rlx/compile/group_units.h"

namespace rlx {

// A call that some units would become.
struct UnitCall {
  const OpDef* op = nullptr;
  Attrs attrs;                  // in normal form
  std::vector<Value> operands;  // of the old graph
  std::vector<Value> results;   // of the old graph: what result i stands for
  std::vector<TensorType> operand_types, result_types;
};

// Whether the node may stand in a region: elementwise on real numbers, one result of a static
// shape.
bool is_fusable(const Graph& graph, const Node& node);

// An ElementwiseRegion of nodes that all have the same shape, or a Group around `root` (its own
// operands come first). Constants that repeat one element become part of the body.
UnitCall unit_call(const GroupUnits& units, std::span<const uint32_t> parts, bool strict_rounding);
UnitCall unit_call(const GroupUnits& units, std::span<const uint32_t> parts, uint32_t root,
                   bool strict_rounding);

}  // namespace rlx
