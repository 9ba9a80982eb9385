#include "rlx/ops/layer_norm.h"

#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(LayerNorm);
RLX_USE_OP(LayerNormBackwardInput);
RLX_USE_OP(LayerNormBackwardGamma);

namespace {

NormalizedRows normalize_rows(Builder& b, Value x, const NormAttrs& a) {
  const auto axes = normalized_axes(b, x, a);
  const Value centered = sub(b, x, mean(b, x, axes, true));
  const Value variance = mean(b, mul(b, centered, centered), axes, true);
  const Value inverse = rsqrt(b, add(b, variance, a.eps));
  return {mul(b, centered, inverse), inverse};
}

std::vector<Value> expand_forward(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  const auto& a = attrs.as<NormAttrs>();
  return expand_norm(b, a, operands, normalize_rows(b, operands[0], a).x_hat);
}

std::vector<Value> expand_backward(Builder& b, const Attrs& attrs,
                                   std::span<const Value> operands) {
  const auto& a = attrs.as<NormAttrs>();
  return expand_norm_backward(b, a, operands, normalize_rows(b, operands[0], a), true);
}

Cost cost(const CostContext& c) { return {8 * element_count(c.operands[0]), io_bytes(c)}; }

Cost cost_backward(const CostContext& c) {
  return {16 * element_count(c.operands[0]), io_bytes(c)};
}

}  // namespace

RLX_DEFINE_OP(LayerNorm) = {
    .name = "LayerNorm",
    .fields = RLX_FIELDS(NormAttrs, axis, eps, batch_axes),
    .doc = R"(Normalizes over the axes axis, ..., rank - 1 together, then scales and shifts.

x of a float type and rank 1 at least; gamma and beta, both optional from the end, have the dtype of
x and the shape x.shape[:batch_axes] + x.shape[axis:]: one row each for the rows of x, or, with
batch_axes, one for every position of the leading axes. The result has the type of x:
  y = (x - mean) / sqrt(variance + eps) * gamma + beta,
with the population variance from a second pass over the deviations. f16 and bf16 are computed in
f32 and rounded once. A row with NaN or infinity gives NaN; an empty row gives an empty result.
Errors: axis out of range, batch_axes below 0 or above the axis, gamma or beta of another type,
negative eps.
Derivative: LayerNormBackwardInput.
Compare: torch.nn.functional.layer_norm, ONNX LayerNormalization.)",
    .infer = infer_norm,
    .normalize = normalize_axis_of_first<NormAttrs>,
    .decompose = {.expand = expand_forward},
    .jvp = norm_jvp<kLayerNormBackwardInputOp>,
    .vjp = norm_vjp<kLayerNormBackwardInputOp>,
    .batching = norm_batching,
    .cost = cost,
    .tail = norm_tail,
};

RLX_DEFINE_OP(LayerNormBackwardInput) = {
    .name = "LayerNormBackwardInput",
    .fields = RLX_FIELDS(NormAttrs, axis, eps, batch_axes),
    .doc = R"(All gradients of LayerNorm.

Operands x, gamma (optional: 1), dy of the type of x. Results dx (the type of x), dgamma and dbeta
(of the shape of gamma, x.shape[:batch_axes] + x.shape[axis:]); those that nobody reads are not
computed. With
x_hat = (x - mean) * inv, inv = 1 / sqrt(variance + eps), g = dy * gamma:
  dx = inv * (g - mean(g) - x_hat * mean(g * x_hat)),   means over the normalized axes,
  dgamma = sum of dy * x_hat,  dbeta = sum of dy,   sums over the axes batch_axes, ..., axis - 1.
The statistics are computed again from x. f16 and bf16 are computed in f32 and rounded once.
Errors: as LayerNorm; dy of another type than x.
Compare: the gradients of torch.nn.functional.layer_norm.)",
    .infer = infer_norm_backward,
    .normalize = normalize_axis_of_first<NormAttrs>,
    .decompose = {.expand = expand_backward},
    .batching = norm_backward_batching,
    .cost = cost_backward,
    .tail = norm_backward_tail,
};

RLX_DEFINE_OP(LayerNormBackwardGamma) = {
    .name = "LayerNormBackwardGamma",
    .fields = RLX_FIELDS(NormAttrs, axis, eps, batch_axes),
    .doc = R"(The gradient of LayerNorm in gamma: the second result of LayerNormBackwardInput.

Operands x and dy of one float type; the result has the shape x.shape[:batch_axes] +
x.shape[axis:].
Errors: as LayerNormBackwardInput.)",
    .infer = infer_norm_backward_gamma,
    .normalize = normalize_axis_of_first<NormAttrs>,
    .decompose = {.expand = expand_norm_part<kLayerNormBackwardInputOp, 1>},
};

Value layer_norm(Builder& b, Value x, Value gamma, Value beta, int64_t axis, double eps) {
  return call_norm(b, kLayerNormOp, x, gamma, beta, {axis, eps});
}

std::vector<Value> layer_norm_backward(Builder& b, Value x, Value gamma, Value dy,
                                       const NormAttrs& attrs) {
  return call_norm_backward(b, kLayerNormBackwardInputOp, x, gamma, dy, attrs);
}

}  // namespace rlx
