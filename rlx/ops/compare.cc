#include "rlx/ops/compare.h"

#include "rlx/ops/build.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Compare);

namespace {

std::vector<TensorType> infer_compare(const InferContext& c) {
  expect_operands(c, 2);
  const CompareKind kind = c.as<CompareAttrs>().kind;
  const bool orders = kind != CompareKind::kEq && kind != CompareKind::kNe;
  if (orders && is_complex(c[0].dtype)) {
    user_error("{} does not accept {}: complex numbers have no order", enum_name(kind),
               to_string(c[0].dtype));
  }
  expect_same_dtype(c, 0, 1);
  return {{DType::kBool, broadcast(c[0].shape, c[1].shape)}};
}

}  // namespace

RLX_DEFINE_OP(Compare) = {
    .name = "Compare",
    .fields = RLX_FIELDS(CompareAttrs, kind),
    .flags = kElementwise | kNoGradient,
    .doc =
        R"(z = (x o y) element by element, a bool; the shapes broadcast as in NumPy.
Operands: x, y of one dtype: any for Eq and Ne, all but complex numbers for Lt, Le, Gt, Ge (false is
below true). Result: bool, the broadcast shape.
Against NaN every kind is false, but Ne is true. -0 equals +0. Complex numbers are equal if both
parts are.
Derivative: none.
Errors: an order of complex numbers, different dtypes, shapes that do not broadcast.)",
    .infer = infer_compare,
    .jvp = jvp_zero,
    .vjp = vjp_zero,
    .batching = batch_elementwise,
};

Value compare(Builder& b, CompareKind kind, Value x, Value y) {
  return b.op(kCompareOp, CompareAttrs{kind}, {x, y});
}
Value equal(Builder& b, Value x, Value y) { return compare(b, CompareKind::kEq, x, y); }
Value less(Builder& b, Value x, Value y) { return compare(b, CompareKind::kLt, x, y); }

}  // namespace rlx
