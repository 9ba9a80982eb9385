// A graph of one call: inputs arg0, arg1, ..., outputs out0, out1, ...
#pragma once

#include "rlx/ir/graph.h"
#include "rlx/ops/samples.h"

namespace rlx {

Graph call_graph(const OpDef& op, const Attrs& attrs, std::span<const TensorType> operands);
std::vector<TensorType> operand_types(const Sample& sample);

}  // namespace rlx
