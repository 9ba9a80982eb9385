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

struct Normalized {
  Value x_hat;
  Value inverse;  // 1 / sqrt(variance + eps), kept axes
};

Normalized normalize_rows(Builder& b, Value x, const LayerNormAttrs& a) {
  const auto axes = axes_between(a.axis, b.shape(x).rank());
  const Value centered = sub(b, x, mean(b, x, axes, true));
  const Value variance = mean(b, mul(b, centered, centered), axes, true);
  const Value inverse = rsqrt(b, add(b, variance, a.eps));
  return {mul(b, centered, inverse), inverse};
}

std::vector<Value> expand_forward(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  const auto& a = attrs.as<LayerNormAttrs>();
  Value y = normalize_rows(b, operands[0], a).x_hat;
  if (operands.size() > 1) y = mul(b, y, align_affine(b, operands[1], a));
  if (operands.size() > 2) y = add(b, y, align_affine(b, operands[2], a));
  return {y};
}

// dx = inverse * (g - mean(g) - x_hat * mean(g * x_hat)), g = dy * gamma.
std::vector<Value> expand_backward(Builder& b, const Attrs& attrs,
                                   std::span<const Value> operands) {
  const auto& a = attrs.as<LayerNormAttrs>();
  const Value x = operands[0], dy = operands.back();
  const int64_t rank = b.shape(x).rank();
  const auto axes = axes_between(a.axis, rank), rows = axes_between(a.batch_axes, a.axis);
  const auto [x_hat, inverse] = normalize_rows(b, x, a);
  const Value g = operands.size() == 3 ? mul(b, dy, align_affine(b, operands[1], a)) : dy;
  const Value along = mul(b, x_hat, mean(b, mul(b, g, x_hat), axes, true));
  const Value across = sub(b, sub(b, g, mean(b, g, axes, true)), along);
  return {mul(b, inverse, across), sum(b, mul(b, dy, x_hat), rows), sum(b, dy, rows)};
}

std::vector<Value> expand_gamma(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  return {layer_norm_backward(b, operands[0], {}, operands[1], attrs.as<LayerNormAttrs>())[1]};
}

Value plain_layer_norm(Builder& b, Value x, const LayerNormAttrs& a) {
  return b.op(kLayerNormOp, a, {x});
}

std::vector<Value> vjp(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  const auto& operands = call.operands;
  const Value gamma = operands.size() > 1 ? operands[1] : Value{};
  auto gradients =
      layer_norm_backward(b, operands[0], gamma, cotangents[0], call.as<LayerNormAttrs>());
  gradients.resize(operands.size());
  return gradients;
}

// The Jacobian of the plain normalization is symmetric.
std::vector<Value> jvp(Builder& b, const RuleCall& call, std::span<const Value> tangents) {
  const auto& a = call.as<LayerNormAttrs>();
  const Value x = call.operands[0];
  Value t;
  if (tangents[0].valid()) {
    t = layer_norm_backward(b, x, {}, tangents[0], a)[0];
    if (call.operands.size() > 1) t = mul(b, t, align_affine(b, call.operands[1], a));
  }
  if (tangents.size() > 1 && tangents[1].valid()) {
    t = add_valid(b, t, mul(b, plain_layer_norm(b, x, a), align_affine(b, tangents[1], a)));
  }
  if (tangents.size() > 2 && tangents[2].valid()) {
    t = add_valid(b, t, expand(b, align_affine(b, tangents[2], a), b.shape(x)));
  }
  return {t};
}

Cost cost(const CostContext& c) { return {8 * element_count(c.operands[0]), io_bytes(c)}; }

Cost cost_backward(const CostContext& c) {
  return {16 * element_count(c.operands[0]), io_bytes(c)};
}

}  // namespace

RLX_DEFINE_OP(LayerNorm) = {
    .name = "LayerNorm",
    .fields = RLX_FIELDS(LayerNormAttrs, axis, eps, batch_axes),
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
    .jvp = jvp,
    .vjp = vjp,
    .batching = norm_batching,
    .cost = cost,
    .tail = norm_tail,
};

RLX_DEFINE_OP(LayerNormBackwardInput) = {
    .name = "LayerNormBackwardInput",
    .fields = RLX_FIELDS(LayerNormAttrs, axis, eps, batch_axes),
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
    .fields = RLX_FIELDS(LayerNormAttrs, axis, eps, batch_axes),
    .doc = R"(The gradient of LayerNorm in gamma: the second result of LayerNormBackwardInput.

Operands x and dy of one float type; the result has the shape x.shape[:batch_axes] +
x.shape[axis:].
Errors: as LayerNormBackwardInput.)",
    .infer = infer_norm_backward_gamma,
    .normalize = normalize_axis_of_first<NormAttrs>,
    .decompose = {.expand = expand_gamma},
};

Value layer_norm(Builder& b, Value x, Value gamma, Value beta, int64_t axis, double eps) {
  const LayerNormAttrs attrs{axis, eps};
  if (!gamma.valid()) {
    const Value y = b.op(kLayerNormOp, attrs, {x});
    return beta.valid() ? add(b, y, beta) : y;
  }
  return beta.valid() ? b.op(kLayerNormOp, attrs, {x, gamma, beta})
                      : b.op(kLayerNormOp, attrs, {x, gamma});
}

std::vector<Value> layer_norm_backward(Builder& b, Value x, Value gamma, Value dy,
                                       const LayerNormAttrs& attrs) {
  const Attrs erased = Attrs::of(kLayerNormBackwardInputOp.fields, attrs);
  return gamma.valid() ? b.call(kLayerNormBackwardInputOp, erased, {x, gamma, dy})
                       : b.call(kLayerNormBackwardInputOp, erased, {x, dy});
}

}  // namespace rlx
