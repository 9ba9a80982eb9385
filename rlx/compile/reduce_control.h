// One control step with less to do: for simplify_control.
#pragma once

#include <vector>

#include "rlx/ir/builder.h"

namespace rlx {

// For every result of the original call: the value that it is known to be, or a result of the
// reduced call, or nothing if it is not used.
struct ReducedResult {
  bool used = true;
  Value known;
  size_t index = 0;
};

// A call of If, While or Scan that is not yet in a graph; the operands are.
struct ControlCall {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<Value> operands;
  std::vector<ReducedResult> results;
};

// Which operands the used results of a call depend on.
std::vector<uint8_t> needed_operands(const Node& node, const std::vector<uint8_t>& used);

// Drops outputs that are not used, carries and inputs that they do not need; captures carries that
// never change and xs that are all alike; merges equal captures, xs and outputs; puts small
// constants into the bodies. What results are known to be without the call may be appended to b.
void reduce_control(Builder& b, ControlCall& call);

}  // namespace rlx
