#include "rlx/ops/cast.h"

#include "rlx/ops/build.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Cast);

namespace {

std::vector<TensorType> infer_cast(const InferContext& c) {
  expect_operands(c, 1);
  return {{c.as<CastAttrs>().to, c[0].shape}};
}

std::vector<Value> jvp_cast(Builder& b, const RuleCall& call, std::span<const Value> tangents) {
  const DType to = call.as<CastAttrs>().to;
  if (!tangents[0].valid() || !is_differentiable(to)) return {Value{}};
  return {cast(b, tangents[0], to)};
}

// Of real and complex numbers: taking the real part and putting it back are each other's adjoints.
std::vector<Value> vjp_cast(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  const DType from = b.dtype(call.operands[0]);
  if (!is_differentiable(from) || !is_differentiable(call.as<CastAttrs>().to)) return {Value{}};
  return {cast(b, cotangents[0], from)};
}

}  // namespace

RLX_DEFINE_OP(Cast) = {
    .name = "Cast",
    .fields = RLX_FIELDS(CastAttrs, to),
    .flags = kElementwise,
    .doc =
        R"(y = x converted to the dtype `to`.
Operands: x, any dtype and shape. Result: `to`, the same shape.
float to float     rounded once, to nearest even; overflow gives infinity, NaN stays NaN
float to integer   the fraction is cut off; what lies beyond the dtype gives its nearest end; NaN
                   gives 0
integer to integer the low bits are kept, or the sign (unsigned: zeros) extended
integer to float   rounded once, to nearest even
any to bool        x != 0, so true for NaN and false for -0 (complex: either part)
bool to any        0 or 1
real to complex    imaginary part 0
complex to real    as the real part; the imaginary part is dropped
Derivative: the cotangent cast back, between floats and complex numbers; else none.)",
    .infer = infer_cast,
    .jvp = jvp_cast,
    .vjp = vjp_cast,
    .batching = batch_elementwise,
};

Value cast(Builder& b, Value x, DType to) {
  return b.dtype(x) == to ? x : b.op(kCastOp, CastAttrs{to}, {x});
}

}  // namespace rlx
