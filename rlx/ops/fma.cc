#include "rlx/ops/build.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Fma);

namespace {

std::vector<TensorType> infer_fma(const InferContext& c) {
  expect_operands(c, 3);
  expect_dtype(c, 0, dtypes::kReals, "x");
  expect_same_dtype(c, 0, 1);
  expect_same_dtype(c, 0, 2);
  return {{c[0].dtype, broadcast(broadcast(c[0].shape, c[1].shape), c[2].shape)}};
}

// tx y + (x ty + tz)
std::vector<Value> jvp_fma(Builder& b, const RuleCall& call, std::span<const Value> tangents) {
  Value t = tangents[2];
  const auto add_product = [&](Value x, Value y) {
    if (x.valid()) t = t.valid() ? fma(b, x, y, t) : mul(b, x, y);
  };
  add_product(tangents[1], call.operands[0]);
  add_product(tangents[0], call.operands[1]);
  return {t.valid() ? expand_to(b, t, b.shape(call.results[0])) : t};
}

std::vector<Value> vjp_fma(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  const Value g = cotangents[0], x = call.operands[0], y = call.operands[1];
  if (!is_differentiable(b.dtype(g))) return {Value{}, Value{}, Value{}};
  return {unbroadcast(b, mul(b, g, y), b.shape(x)), unbroadcast(b, mul(b, g, x), b.shape(y)),
          unbroadcast(b, g, b.shape(call.operands[2]))};
}

}  // namespace

RLX_DEFINE_OP(Fma) = {
    .name = "Fma",
    .fields = RLX_FIELDS(NoAttrs),
    .flags = kElementwise,
    .doc =
        R"(w = x y + z element by element with one rounding; the three shapes broadcast as in NumPy.
Operands: x, y, z of one dtype, a float or an integer. Result: that dtype, the broadcast shape.
f32 and f64 are rounded once, as by C's fma; f16 and bf16 take an f32 fma and are rounded from it.
Integers wrap.
Derivatives: y for x, x for y, 1 for z. Integers: none.
Errors: bool or complex numbers, different dtypes, shapes that do not broadcast.)",
    .infer = infer_fma,
    .jvp = jvp_fma,
    .vjp = vjp_fma,
    .batching = batch_elementwise,
    .cost = [](const CostContext& c) { return elementwise_cost(c, 2); },
};

Value fma(Builder& b, Value x, Value y, Value z) { return b.op(kFmaOp, NoAttrs{}, {x, y, z}); }

}  // namespace rlx
