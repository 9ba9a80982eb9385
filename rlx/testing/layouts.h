// The same call with operands of other layouts: views of differently stored inputs.
#pragma once

#include <vector>

#include "rlx/ir/graph.h"
#include "rlx/ops/samples.h"

namespace rlx {

enum class OperandLayout : uint8_t {
  kContiguous,
  kTransposed,  // stored with all axes reversed
  kSliced,      // the middle of a larger tensor, surrounded by NaN (integers: by the largest value)
  kBroadcast,   // the first axis longer than 1 is stored once
  kIntermediate,  // computed by another step, so that results may take over their memory
  kSlot,          // contiguous, but the first result is a part of a Concat
};
inline constexpr OperandLayout kOperandLayouts[] = {
    OperandLayout::kContiguous, OperandLayout::kTransposed,   OperandLayout::kSliced,
    OperandLayout::kBroadcast,  OperandLayout::kIntermediate, OperandLayout::kSlot};
std::string_view to_string(OperandLayout layout);

struct LaidOutCall {
  Graph graph;                  // outputs out0, ...
  std::vector<Array> inputs;    // by position
  std::vector<Array> operands;  // what the call sees, dense
};
LaidOutCall lay_out(const OpDef& op, const Attrs& attrs, const std::vector<Array>& operands,
                    OperandLayout layout);

}  // namespace rlx
