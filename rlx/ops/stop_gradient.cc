#include "rlx/ops/build.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(StopGradient);

namespace {

std::vector<TensorType> infer_stop_gradient(const InferContext& c) {
  expect_operands(c, 1);
  return infer_same_as_first(c);
}

}  // namespace

RLX_DEFINE_OP(StopGradient) = {
    .name = "StopGradient",
    .fields = RLX_FIELDS(NoAttrs),
    .flags = kElementwise | kIdentity | kNoGradient,
    .doc =
        R"(y = x, treated as a constant by every derivative.
Operands: x, any dtype and shape. Result: the type of x. It moves no data: after differentiation the
compiler removes it.
Derivative: zero, by definition.)",
    .infer = infer_stop_gradient,
    .jvp = jvp_zero,
    .vjp = vjp_zero,
    .batching = batch_elementwise,
    .cost = [](const CostContext&) { return Cost{}; },
};

Value stop_gradient(Builder& b, Value x) { return b.op(kStopGradientOp, NoAttrs{}, {x}); }

}  // namespace rlx
