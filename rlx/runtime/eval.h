// One-shot evaluation: a plan for one call, run on the calling thread.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "rlx/base/array.h"
#include "rlx/ir/op.h"
#include "rlx/runtime/device.h"

namespace rlx {

// The results of one call on arrays, computed by the device's kernel (or the decomposition).
std::vector<Array> eval(const Device& device, const OpDef& op, const Attrs& attrs,
                        std::span<const Array> operands);
inline std::vector<Array> eval(const Device& device, const OpDef& op, const Attrs& attrs,
                               std::initializer_list<Array> operands) {
  return eval(device, op, attrs, std::span<const Array>(operands.begin(), operands.size()));
}

// The outputs of a graph without params.
std::vector<Array> eval(const Device& device, const Graph& graph, std::span<const Array> inputs);

}  // namespace rlx
