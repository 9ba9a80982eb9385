#include "rlx/ops/elementwise.h"

#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"

namespace rlx {

Cost elementwise_cost(const CostContext& c, double flops_per_element) {
  return {flops_per_element * element_count(c.results[0]), io_bytes(c)};
}

Value expand_to(Builder& b, Value x, const Shape& shape) {
  return b.shape(x) == shape ? x : expand(b, x, shape);
}

Value zero_of(Builder& b, Value x) { return scalar(b, b.dtype(x), 0); }

std::vector<Value> jvp_zero(Builder&, const RuleCall& call, std::span<const Value>) {
  return std::vector<Value>(call.results.size());
}

std::vector<Value> vjp_zero(Builder&, const RuleCall& call, std::span<const Value>) {
  return std::vector<Value>(call.operands.size());
}

}  // namespace rlx
