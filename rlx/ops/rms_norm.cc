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

// 1 / sqrt(mean of squares + eps), kept axes.
Value inverse_rms(Builder& b, Value x, const RmsNormAttrs& a) {
  const auto axes = axes_between(a.axis, b.shape(x).rank());
  return rsqrt(b, add(b, mean(b, mul(b, x, x), axes, true), a.eps));
}

std::vector<Value> expand_forward(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  const auto& a = attrs.as<RmsNormAttrs>();
  Value y = mul(b, operands[0], inverse_rms(b, operands[0], a));
  if (operands.size() > 1) y = mul(b, y, align_affine(b, operands[1], a));
  if (operands.size() > 2) y = add(b, y, align_affine(b, operands[2], a));
  return {y};
}

// dx = r * (g - x_hat * mean(g * x_hat)), g = dy * gamma, x_hat = x * r.
std::vector<Value> expand_backward(Builder& b, const Attrs& attrs,
                                   std::span<const Value> operands) {
  const auto& a = attrs.as<RmsNormAttrs>();
  const Value x = operands[0], dy = operands.back();
  const int64_t rank = b.shape(x).rank();
  const auto axes = axes_between(a.axis, rank), rows = axes_between(a.batch_axes, a.axis);
  const Value inverse = inverse_rms(b, x, a), x_hat = mul(b, x, inverse);
  const Value g = operands.size() == 3 ? mul(b, dy, align_affine(b, operands[1], a)) : dy;
  const Value along = mul(b, x_hat, mean(b, mul(b, g, x_hat), axes, true));
  return {mul(b, inverse, sub(b, g, along)), sum(b, mul(b, dy, x_hat), rows), sum(b, dy, rows)};
}

template <size_t kResult>
std::vector<Value> expand_part(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  return {rms_norm_backward(b, operands[0], {}, operands[1], attrs.as<RmsNormAttrs>())[kResult]};
}

std::vector<Value> vjp(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  const auto& operands = call.operands;
  const Value gamma = operands.size() > 1 ? operands[1] : Value{};
  auto gradients = rms_norm_backward(b, operands[0], gamma, cotangents[0], call.as<RmsNormAttrs>());
  gradients.resize(operands.size());
  return gradients;
}

// The Jacobian of the plain normalization is symmetric.
std::vector<Value> jvp(Builder& b, const RuleCall& call, std::span<const Value> tangents) {
  const auto& a = call.as<RmsNormAttrs>();
  const Value x = call.operands[0];
  Value t;
  if (tangents[0].valid()) {
    t = rms_norm_backward(b, x, {}, tangents[0], a)[0];
    if (call.operands.size() > 1) t = mul(b, t, align_affine(b, call.operands[1], a));
  }
  if (tangents.size() > 1 && tangents[1].valid()) {
    const Value x_hat = b.op(kRmsNormOp, a, {x});
    t = add_valid(b, t, mul(b, x_hat, align_affine(b, tangents[1], a)));
  }
  if (tangents.size() > 2 && tangents[2].valid()) {
    t = add_valid(b, t, expand(b, align_affine(b, tangents[2], a), b.shape(x)));
  }
  return {t};
}

Cost cost(const CostContext& c) { return {5 * element_count(c.operands[0]), io_bytes(c)}; }

Cost cost_backward(const CostContext& c) {
  return {12 * element_count(c.operands[0]), io_bytes(c)};
}

}  // namespace

RLX_DEFINE_OP(RmsNorm) = {
    .name = "RmsNorm",
    .fields = RLX_FIELDS(RmsNormAttrs, axis, eps, batch_axes),
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
    .normalize = normalize_axis_of_first<RmsNormAttrs>,
    .decompose = {.expand = expand_forward},
    .jvp = jvp,
    .vjp = vjp,
    .batching = norm_batching,
    .cost = cost,
    .tail = norm_tail,
};

RLX_DEFINE_OP(RmsNormBackwardInput) = {
    .name = "RmsNormBackwardInput",
    .fields = RLX_FIELDS(RmsNormAttrs, axis, eps, batch_axes),
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
    .normalize = normalize_axis_of_first<RmsNormAttrs>,
    .decompose = {.expand = expand_backward},
    .batching = norm_backward_batching,
    .cost = cost_backward,
    .tail = norm_backward_tail,
};

RLX_DEFINE_OP(RmsNormBackwardGamma) = {
    .name = "RmsNormBackwardGamma",
    .fields = RLX_FIELDS(RmsNormAttrs, axis, eps, batch_axes),
    .doc = R"(The gradient of RmsNorm in gamma: the second result of RmsNormBackwardInput.

Operands x and dy of one float type; the result has the shape x.shape[:batch_axes] +
x.shape[axis:].
Errors: as RmsNormBackwardInput.)",
    .infer = infer_norm_backward_gamma,
    .normalize = normalize_axis_of_first<RmsNormAttrs>,
    .decompose = {.expand = expand_part<1>},
};

RLX_DEFINE_OP(RmsNormBackwardBeta) = {
    .name = "RmsNormBackwardBeta",
    .fields = RLX_FIELDS(RmsNormAttrs, axis, eps, batch_axes),
    .doc = R"(The gradient of RmsNorm in beta: the third result of RmsNormBackwardInput.

Operands x and dy of one float type; the result has the shape x.shape[:batch_axes] +
x.shape[axis:]. Of x only the type counts.
Errors: as RmsNormBackwardInput.)",
    .infer = infer_norm_backward_gamma,
    .normalize = normalize_axis_of_first<RmsNormAttrs>,
    .decompose = {.expand = expand_part<2>},
};

Value rms_norm(Builder& b, Value x, Value gamma, Value beta, int64_t axis, double eps) {
  const RmsNormAttrs attrs{axis, eps};
  if (!gamma.valid()) {
    const Value y = b.op(kRmsNormOp, attrs, {x});
    return beta.valid() ? add(b, y, beta) : y;
  }
  return beta.valid() ? b.op(kRmsNormOp, attrs, {x, gamma, beta})
                      : b.op(kRmsNormOp, attrs, {x, gamma});
}

std::vector<Value> rms_norm_backward(Builder& b, Value x, Value gamma, Value dy,
                                     const RmsNormAttrs& attrs) {
  const Attrs erased = Attrs::of(kRmsNormBackwardInputOp.fields, attrs);
  return gamma.valid() ? b.call(kRmsNormBackwardInputOp, erased, {x, gamma, dy})
                       : b.call(kRmsNormBackwardInputOp, erased, {x, dy});
}

}  // namespace rlx
