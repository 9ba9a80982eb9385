#include "rlx/ops/build.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Conjugate);

namespace {

std::vector<TensorType> infer_conjugate(const InferContext& c) {
  expect_operands(c, 1);
  expect_dtype(c, 0, dtypes::kComplexes, "x");
  return {c[0]};
}

// Linear over the real numbers, and its own adjoint.
std::vector<Value> conjugate_derivative(Builder& b, const RuleCall&, std::span<const Value> given) {
  return {given[0].valid() ? conjugate(b, given[0]) : Value{}};
}

}  // namespace

RLX_DEFINE_OP(Conjugate) = {
    .name = "Conjugate",
    .fields = RLX_FIELDS(NoAttrs),
    .flags = kElementwise,
    .doc =
        R"(y = conj(x): the sign of every imaginary part is turned, also of zeros and NaN.
Operands: x, complex, any shape. Result: the type of x.
Derivative: the conjugate of the tangent, or of the cotangent.
Errors: a real dtype.)",
    .infer = infer_conjugate,
    .jvp = conjugate_derivative,
    .vjp = conjugate_derivative,
    .batching = batch_elementwise,
};

Value conjugate(Builder& b, Value x) {
  return is_complex(b.dtype(x)) ? b.op(kConjugateOp, NoAttrs{}, {x}) : x;
}

}  // namespace rlx
