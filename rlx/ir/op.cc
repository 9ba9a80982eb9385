#include "rlx/ir/op.h"

namespace rlx {

Cost cost_of(const OpDef& op, const CostContext& context) {
  if (op.cost) return op.cost(context);
  Cost cost;
  const auto elements = [](const TensorType& t) {
    return double(num_elements(t.shape.static_dims()));
  };
  const auto bytes = [](const TensorType& t) {
    return double(byte_size(t.dtype, t.shape.static_dims()));
  };
  for (const TensorType& t : context.operands) cost.bytes += bytes(t);
  for (const TensorType& t : context.results) {
    cost.flops += elements(t);
    cost.bytes += bytes(t);
  }
  return cost;
}

}  // namespace rlx
