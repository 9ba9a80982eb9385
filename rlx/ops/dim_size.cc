#include "rlx/ops/dim_size.h"

#include "rlx/ops/build.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(DimSize);

namespace {

std::vector<TensorType> infer(const InferContext& c) {
  expect_operands(c, 1);
  expect_dtype(c, 0, dtypes::kAny, "x");
  return {{DType::kI64, {}}};
}

std::vector<Value> batch(Builder& b, const RuleCall& call, std::span<const uint8_t>,
                         const Dim& size) {
  const Value y = dim_size(b, call.operands[0], call.as<DimSizeAttrs>().axis + 1);
  return {with_batch(b, y, false, size)};
}

Cost cost(const CostContext&) { return {}; }

}  // namespace

RLX_DEFINE_OP(DimSize) = {
    .name = "DimSize",
    .fields = RLX_FIELDS(DimSizeAttrs, axis),
    .flags = kNoGradient,
    .doc =
        R"(The size of an axis as a number, for computing with symbolic sizes (positions, counts).
Operands: x, any dtype, of which only the shape counts. Attributes: axis (negative counts from the
end). Result: i64, a scalar. Once the sizes are bound it becomes a constant, and x is not computed for
it. Errors: axis out of range.
Derivative: zero.)",
    .infer = infer,
    .normalize = normalize_axis_of_first<DimSizeAttrs>,
    .jvp = jvp_zero,
    .vjp = vjp_zero,
    .batching = batch,
    .cost = cost,
};

Value dim_size(Builder& b, Value x, int64_t axis) {
  return b.op(kDimSizeOp, DimSizeAttrs{axis}, {x});
}

}  // namespace rlx
