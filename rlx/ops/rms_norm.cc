#include "rlx/ops/rms_norm.h"

#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(RmsNorm);
RLX_USE_OP(RmsNormBackwardInput);
RLX_USE_OP(RmsNormBackwardGamma);
RLX_USE_OP(RmsNormBackwardBeta);

namespace {

NormalizedRows normalize_rows(Builder& b, Value x, const NormAttrs& a) {
  const Value squares = mean(b, mul(b, x, x), normalized_axes(b, x, a), true);
  const Value inverse = rsqrt(b, add(b, squares, a.eps));
  return {mul(b, x, inverse), inverse};
}

std::vector<Value> expand_forward(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  const auto& a = attrs.as<NormAttrs>();
  return expand_norm(b, a, operands, normalize_rows(b, operands[0], a).x_hat);
}

std::vector<Value> expand_backward(Builder& b, const Attrs& attrs,
                                   std::span<const Value> operands) {
  const auto& a = attrs.as<NormAttrs>();
  return expand_norm_backward(b, a, operands, normalize_rows(b, operands[0], a), false);
}

Cost cost(const CostContext& c) { return {5 * element_count(c.operands[0]), io_bytes(c)}; }

Cost cost_backward(const CostContext& c) {
  return {12 * element_count(c.operands[0]), io_bytes(c)};
}

}  // namespace

RLX_DEFINE_OP(RmsNorm) = {
    .name = "RmsNorm",
    .fields = RLX_FIELDS(NormAttrs, axis, eps, batch_axes),
    .doc =
        R"(Divides by the root of the mean square over the axes axis, ..., rank - 1 together, then
scales and shifts.

x of a float type and rank 1 at least; gamma and beta, both optional from the end, have the dtype of
x and the shape x.shape[:batch_axes] + x.shape[axis:]: one row each for the rows of x, or, with
batch_axes, one for every position of the leading axes. The result has the type of x:
  y = x / sqrt(mean(x^2) + eps) * gamma + beta.
f16 and bf16 are computed in f32 and rounded once. NaN makes the whole row NaN; an infinity gives NaN
in its place and 0 for the finite x of its row; an empty row gives an empty result.
Errors: axis out of range, batch_axes below 0 or above the axis, gamma or beta of another type,
negative eps.
Derivative: RmsNormBackwardInput.
Compare: torch.nn.functional.rms_norm with an explicit eps, ONNX RMSNormalization.)",
    .infer = infer_norm,
    .normalize = normalize_axis_of_first<NormAttrs>,
    .decompose = {.expand = expand_forward},
    .jvp = norm_jvp<kRmsNormBackwardInputOp>,
    .vjp = norm_vjp<kRmsNormBackwardInputOp>,
    .batching = norm_batching,
    .cost = cost,
    .tail = norm_tail,
};

RLX_DEFINE_OP(RmsNormBackwardInput) = {
    .name = "RmsNormBackwardInput",
    .fields = RLX_FIELDS(NormAttrs, axis, eps, batch_axes),
    .doc = R"(All gradients of RmsNorm.

Operands x, gamma (optional: 1), dy of the type of x. Results dx (the type of x), dgamma and dbeta
(of the shape of gamma, x.shape[:batch_axes] + x.shape[axis:]); those that nobody reads are not
computed. With
r = 1 / sqrt(mean(x^2) + eps), x_hat = x * r, g = dy * gamma:
  dx = r * (g - x_hat * mean(g * x_hat)),   mean over the normalized axes,
  dgamma = sum of dy * x_hat,  dbeta = sum of dy,   sums over the axes batch_axes, ..., axis - 1.
r is computed again from x. f16 and bf16 are computed in f32 and rounded once.
Errors: as RmsNorm; dy of another type than x.
Compare: the gradients of torch.nn.functional.rms_norm.)",
    .infer = infer_norm_backward,
    .normalize = normalize_axis_of_first<NormAttrs>,
    .decompose = {.expand = expand_backward},
    .batching = norm_backward_batching,
    .cost = cost_backward,
    .tail = norm_backward_tail,
};

RLX_DEFINE_OP(RmsNormBackwardGamma) = {
    .name = "RmsNormBackwardGamma",
    .fields = RLX_FIELDS(NormAttrs, axis, eps, batch_axes),
    .doc = R"(The gradient of RmsNorm in gamma: the second result of RmsNormBackwardInput.

Operands x and dy of one float type; the result has the shape x.shape[:batch_axes] +
x.shape[axis:].
Errors: as RmsNormBackwardInput.)",
    .infer = infer_norm_backward_gamma,
    .normalize = normalize_axis_of_first<NormAttrs>,
    .decompose = {.expand = expand_norm_part<kRmsNormBackwardInputOp, 1>},
};

RLX_DEFINE_OP(RmsNormBackwardBeta) = {
    .name = "RmsNormBackwardBeta",
    .fields = RLX_FIELDS(NormAttrs, axis, eps, batch_axes),
    .doc = R"(The gradient of RmsNorm in beta: the third result of RmsNormBackwardInput.

Operands x and dy of one float type; the result has the shape x.shape[:batch_axes] +
x.shape[axis:]. Of x only the type counts.
Errors: as RmsNormBackwardInput.)",
    .infer = infer_norm_backward_gamma,
    .normalize = normalize_axis_of_first<NormAttrs>,
    .decompose = {.expand = expand_norm_part<kRmsNormBackwardInputOp, 2>},
};

Value rms_norm(Builder& b, Value x, Value gamma, Value beta, int64_t axis, double eps) {
  return call_norm(b, kRmsNormOp, x, gamma, beta, {axis, eps});
}

std::vector<Value> rms_norm_backward(Builder& b, Value x, Value gamma, Value dy,
                                     const NormAttrs& attrs) {
  return call_norm_backward(b, kRmsNormBackwardInputOp, x, gamma, dy, attrs);
}

}  // namespace rlx
