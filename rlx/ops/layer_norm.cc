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

void check_x(const InferContext& c) {
  expect_dtype(c, 0, dtypes::kFloats, "x");
  const auto& a = c.as<LayerNormAttrs>();
  if (!(a.eps >= 0)) user_error("eps is {}, expected a number that is not negative", a.eps);
  if (a.batch_axes < 0 || a.batch_axes > a.axis) {
    user_error("batch_axes is {}, expected 0 to {} (the axes before the normalized ones)",
               a.batch_axes, a.axis);
  }
}

// Of gamma and beta.
TensorType affine_type(const InferContext& c) {
  const auto& a = c.as<LayerNormAttrs>();
  Shape shape = c[0].shape.slice(0, a.batch_axes);
  for (int64_t axis = a.axis; axis < c[0].shape.rank(); ++axis) shape.push_back(c[0].shape[axis]);
  return {c[0].dtype, std::move(shape)};
}

// Operand i is gamma or beta.
void check_affine(const InferContext& c, size_t i, std::string_view what) {
  const TensorType expected = affine_type(c);
  if (c[i] != expected) {
    user_error("{} must be {} ({}), it is {}", what, expected.to_string(),
               c.as<LayerNormAttrs>().batch_axes == 0
                   ? "x from the axis on"
                   : "the batch axes of x, then x from the axis on",
               c[i].to_string());
  }
}

std::vector<TensorType> infer_forward(const InferContext& c) {
  expect_operands(c, 1, 3);
  check_x(c);
  if (c.operands.size() > 1) check_affine(c, 1, "gamma");
  if (c.operands.size() > 2) check_affine(c, 2, "beta");
  return {c[0]};
}

std::vector<TensorType> infer_backward(const InferContext& c) {
  expect_operands(c, 2, 3);
  check_x(c);
  if (c.operands.size() == 3) check_affine(c, 1, "gamma");
  expect_same_type(c, 0, c.operands.size() - 1);
  const TensorType parameter = affine_type(c);
  return {c[0], parameter, parameter};
}

std::vector<TensorType> infer_gamma(const InferContext& c) {
  expect_operands(c, 2);
  return {infer_backward(c)[1]};
}

std::vector<int64_t> axes_between(int64_t first, int64_t last) {
  std::vector<int64_t> axes;
  for (int64_t a = first; a < last; ++a) axes.push_back(a);
  return axes;
}

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

// gamma or beta, ready to broadcast against x.
Value align_affine(Builder& b, Value v, const LayerNormAttrs& a) {
  if (a.batch_axes == 0) return v;
  for (int64_t i = a.batch_axes; i < a.axis; ++i) v = unsqueeze(b, v, a.batch_axes);
  return v;
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

// gamma and beta stay shared if neither they nor an outer batch make them differ by example.
std::vector<Value> batch(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                         const Dim& size) {
  LayerNormAttrs a = call.as<LayerNormAttrs>();
  const bool shared = a.batch_axes == 0 && std::none_of(batched.begin() + 1, batched.end(),
                                                        [](uint8_t f) { return f != 0; });
  a.axis += 1;
  if (!shared) a.batch_axes += 1;
  std::vector<Value> operands(call.operands.begin(), call.operands.end());
  for (size_t i = 0; i < (shared ? 1 : operands.size()); ++i) {
    operands[i] = with_batch(b, operands[i], batched[i] != 0, size);
  }
  return b.call(call.op, Attrs::of(call.attrs.table(), a), operands);
}

// The gradients of gamma and beta are not summed over the batch.
std::vector<Value> batch_backward(Builder& b, const RuleCall& call,
                                  std::span<const uint8_t> batched, const Dim& size) {
  LayerNormAttrs a = call.as<LayerNormAttrs>();
  a.axis += 1;
  a.batch_axes += 1;
  std::vector<Value> operands(call.operands.begin(), call.operands.end());
  for (size_t i = 0; i < operands.size(); ++i) {
    operands[i] = with_batch(b, operands[i], batched[i] != 0, size);
  }
  return b.call(call.op, Attrs::of(call.attrs.table(), a), operands);
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
    .infer = infer_forward,
    .normalize = normalize_axis_of_first<LayerNormAttrs>,
    .decompose = {.expand = expand_forward},
    .jvp = jvp,
    .vjp = vjp,
    .batching = batch,
    .cost = cost,
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
    .infer = infer_backward,
    .normalize = normalize_axis_of_first<LayerNormAttrs>,
    .decompose = {.expand = expand_backward},
    .batching = batch_backward,
    .cost = cost_backward,
};

RLX_DEFINE_OP(LayerNormBackwardGamma) = {
    .name = "LayerNormBackwardGamma",
    .fields = RLX_FIELDS(LayerNormAttrs, axis, eps, batch_axes),
    .doc = R"(The gradient of LayerNorm in gamma: the second result of LayerNormBackwardInput.

Operands x and dy of one float type; the result has the shape x.shape[:batch_axes] +
x.shape[axis:].
Errors: as LayerNormBackwardInput.)",
    .infer = infer_gamma,
    .normalize = normalize_axis_of_first<LayerNormAttrs>,
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
