#include "rlx/ops/fused.h"

#include <array>

#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rms_norm.h"

namespace rlx {

RLX_USE_OP(FusedConvBiasAct);
RLX_USE_OP(FusedMatMulBiasAct);
RLX_USE_OP(FusedMatMulResidual);
RLX_USE_OP(FusedResidualLN);
RLX_USE_OP(FusedResidualRmsNorm);
RLX_USE_OP(FusedSwiGLU);
RLX_USE_OP(Conv);
RLX_USE_OP(LayerNorm);
RLX_USE_OP(MatMul);

namespace {

void expect_type(const InferContext& c, size_t i, const TensorType& expected,
                 std::string_view what) {
  if (c[i] != expected) {
    user_error("{} must be {}, it is {}", what, expected.to_string(), c[i].to_string());
  }
}

Value activate(Builder& b, const std::optional<ActivationKind>& kind, Value x) {
  return kind ? activation(b, *kind, x) : x;
}

// --- Products

TensorType product_type(const InferContext& c) {
  expect_dtype(c, 0, dtypes::kFloats, "x");
  expect_min_rank(c, 0, 2, "x");
  expect_min_rank(c, 1, 2, "w");
  return infer_call(kMatMulOp, Attrs::of(kMatMulOp.fields, NoAttrs{}), c.operands.first(2))
      .results[0];
}

std::vector<TensorType> infer_matmul_bias_act(const InferContext& c) {
  expect_operands(c, 3);
  TensorType y = product_type(c);
  expect_type(c, 2, {y.dtype, Shape{y.shape[y.shape.rank() - 1]}}, "bias");
  return {std::move(y)};
}

std::vector<Value> expand_matmul_bias_act(Builder& b, const Attrs& attrs,
                                          std::span<const Value> v) {
  const Value y = add(b, matmul(b, v[0], v[1]), v[2]);
  return {activate(b, attrs.as<FusedMatMulBiasActAttrs>().activation, y)};
}

std::vector<TensorType> infer_matmul_residual(const InferContext& c) {
  expect_operands(c, 3);
  TensorType y = product_type(c);
  expect_type(c, 2, y, "residual");
  return {std::move(y)};
}

std::vector<Value> expand_matmul_residual(Builder& b, const Attrs&, std::span<const Value> v) {
  return {add(b, matmul(b, v[0], v[1]), v[2])};
}

// --- Convolution

ConvAttrs conv_attrs(const FusedConvBiasActAttrs& a) {
  return {a.stride, a.padding, a.dilation, a.groups};
}

Attrs normalize_conv_bias_act(const InferContext& c) {
  if (c.operands.empty()) return c.attrs;  // infer says what is missing
  FusedConvBiasActAttrs a = c.as<FusedConvBiasActAttrs>();
  normalize_conv(a, c[0].shape.rank() - 2);
  return Attrs::of(c.attrs.table(), std::move(a));
}

std::vector<TensorType> infer_conv_bias_act(const InferContext& c) {
  const auto& a = c.as<FusedConvBiasActAttrs>();
  expect_operands(c, a.has_residual ? 4 : 3);
  TensorType y =
      infer_call(kConvOp, Attrs::of(kConvOp.fields, conv_attrs(a)), c.operands.first(2)).results[0];
  expect_type(c, 2, {y.dtype, Shape{y.shape[1]}}, "bias");
  if (a.has_residual) expect_type(c, 3, y, "residual");
  return {std::move(y)};
}

std::vector<Value> expand_conv_bias_act(Builder& b, const Attrs& attrs, std::span<const Value> v) {
  const auto& a = attrs.as<FusedConvBiasActAttrs>();
  Value y = conv(b, v[0], v[1], conv_attrs(a));
  Shape channels(std::vector<Dim>(size_t(b.shape(y).rank()), Dim(1)));
  channels[1] = b.shape(v[2])[0];
  y = add(b, y, reshape(b, v[2], std::move(channels)));
  if (a.has_residual) y = add(b, y, v[3]);
  return {activate(b, a.activation, y)};
}

// --- Norms

std::vector<TensorType> infer_residual_norm(const InferContext& c) {
  const auto& a = c.as<FusedResidualLNAttrs>();
  expect_operands(c, a.has_bias ? 5 : 4);
  expect_dtype(c, 0, dtypes::kFloats, "x");
  expect_min_rank(c, 0, 1, "x");
  expect_type(c, 1, c[0], "residual");
  if (!(a.eps >= 0)) user_error("eps is {}, expected a number that is not negative", a.eps);
  const TensorType row{c[0].dtype, Shape{c[0].shape[c[0].shape.rank() - 1]}};
  constexpr std::array<std::string_view, 3> kNames = {"bias", "gamma", "beta"};
  for (size_t i = 2; i < c.operands.size(); ++i) {
    expect_type(c, i, row, kNames[i - (a.has_bias ? 2 : 1)]);
  }
  return {c[0]};
}

Value residual_sum(Builder& b, std::span<const Value> v, bool has_bias) {
  const Value s = add(b, v[0], v[1]);
  return has_bias ? add(b, s, v[2]) : s;
}

std::vector<Value> expand_residual_ln(Builder& b, const Attrs& attrs, std::span<const Value> v) {
  const auto& a = attrs.as<FusedResidualLNAttrs>();
  const Value gamma = v[v.size() - 2], beta = v[v.size() - 1];
  return {layer_norm(b, residual_sum(b, v, a.has_bias), gamma, beta, -1, a.eps)};
}

std::vector<Value> expand_residual_rms(Builder& b, const Attrs& attrs, std::span<const Value> v) {
  const auto& a = attrs.as<FusedResidualRmsNormAttrs>();
  const Value gamma = v[v.size() - 2], beta = v[v.size() - 1];
  return {rms_norm(b, residual_sum(b, v, a.has_bias), gamma, beta, -1, a.eps)};
}

// --- SwiGLU

std::vector<TensorType> infer_swiglu(const InferContext& c) {
  expect_operands(c, 1);
  expect_dtype(c, 0, dtypes::kFloats, "x");
  expect_min_rank(c, 0, 1, "x");
  const auto& cast_to = c.as<FusedSwiGLUAttrs>().cast_to;
  if (cast_to && !dtypes::kFloats.contains(*cast_to)) {
    user_error("cast_to is {}, expected a float", to_string(*cast_to));
  }
  TensorType y = c[0];
  Dim& last = y.shape[y.shape.rank() - 1];
  const std::optional<Dim> half = exact_div(last, Dim(2));
  if (!half) {
    user_error("the last axis of {} is {}, it must have two halves", c[0].shape.to_string(),
               last.is_static() ? "odd" : "not known to be even (a size of twice a symbol is)");
  }
  last = *half;
  y.dtype = cast_to.value_or(y.dtype);
  return {std::move(y)};
}

std::vector<Value> expand_swiglu(Builder& b, const Attrs& attrs, std::span<const Value> v) {
  const auto& a = attrs.as<FusedSwiGLUAttrs>();
  const int64_t axis = b.shape(v[0]).rank() - 1;
  const Dim half = exact_div(b.shape(v[0])[axis], Dim(2)).value();
  const Value low = narrow(b, v[0], axis, 0, half), high = narrow(b, v[0], axis, half, half);
  const Value up = a.gate_first ? high : low, gate = a.gate_first ? low : high;
  const Value product = mul(b, up, gate);
  const Value y = mul(b, product, sigmoid(b, gate));
  return {a.cast_to ? cast(b, y, *a.cast_to) : y};
}

}  // namespace

RLX_DEFINE_OP(FusedMatMulBiasAct) = {
    .name = "FusedMatMulBiasAct",
    .fields = RLX_FIELDS(FusedMatMulBiasActAttrs, activation),
    .doc = R"(y = activation(x w + bias): another name of MatMul, Binary Add and Activation.
x [.., M, K], w [K, N] or batched, bias [N], of one float type; y has the type of MatMul(x, w).
activation: one of Activation's kinds; none: y = x w + bias.
Errors: those of MatMul, a vector as x or w, another bias.
Compare: torch.nn.functional.linear(x, w.T, bias).)",
    .infer = infer_matmul_bias_act,
    .decompose = {.expand = expand_matmul_bias_act},
};

RLX_DEFINE_OP(FusedMatMulResidual) = {
    .name = "FusedMatMulResidual",
    .fields = RLX_FIELDS(NoAttrs),
    .doc = R"(y = x w + residual: another name of MatMul and Binary Add.
x [.., M, K], w [K, N] or batched, of one float type; residual and y have the type of MatMul(x, w),
nothing is broadcast. Errors: those of MatMul, a vector as x or w, another residual.)",
    .infer = infer_matmul_residual,
    .decompose = {.expand = expand_matmul_residual},
};

RLX_DEFINE_OP(FusedConvBiasAct) = {
    .name = "FusedConvBiasAct",
    .fields = RLX_FIELDS(FusedConvBiasActAttrs, stride, padding, dilation, groups, activation,
                         has_residual),
    .doc = R"(y = activation(Conv(x, w) + bias + residual): another name of these.
x, w and the first four attributes as in Conv; bias [Co] is added to every channel; residual (if
has_residual) has the type of the convolution. activation: one of Activation's kinds, or none.
Errors: those of Conv, another bias or residual.
Compare: torch.nn.functional.conv2d(x, w, bias, ...).)",
    .infer = infer_conv_bias_act,
    .normalize = normalize_conv_bias_act,
    .decompose = {.expand = expand_conv_bias_act},
};

RLX_DEFINE_OP(FusedResidualLN) = {
    .name = "FusedResidualLN",
    .fields = RLX_FIELDS(FusedResidualLNAttrs, has_bias, eps),
    .doc = R"(y = LayerNorm(x + residual + bias) along the last axis: another name of these.
Operands: x [.., D], residual (as x), bias [D] if has_bias, gamma [D], beta [D], of one float type.
y = (s - mean s) / sqrt(var s + eps) * gamma + beta for s = x + residual (+ bias), with the biased
variance. The sum is no result: a model that needs it uses LayerNorm itself.
Errors: other types, a negative eps.
Compare: torch.nn.functional.layer_norm(x + r + b, (D,), gamma, beta, eps).)",
    .infer = infer_residual_norm,
    .decompose = {.expand = expand_residual_ln},
};

RLX_DEFINE_OP(FusedResidualRmsNorm) = {
    .name = "FusedResidualRmsNorm",
    .fields = RLX_FIELDS(FusedResidualRmsNormAttrs, has_bias, eps),
    .doc = R"(y = RmsNorm(x + residual + bias) along the last axis: another name of these.
Operands: x [.., D], residual (as x), bias [D] if has_bias, gamma [D], beta [D], of one float type.
y = s / sqrt(mean(s^2) + eps) * gamma + beta for s = x + residual (+ bias), which is no result.
Errors: other types, a negative eps.
Compare: torch.nn.functional.rms_norm(x + r + b, (D,), gamma, eps) + beta.)",
    .infer = infer_residual_norm,
    .decompose = {.expand = expand_residual_rms},
};

RLX_DEFINE_OP(FusedSwiGLU) = {
    .name = "FusedSwiGLU",
    .fields = RLX_FIELDS(FusedSwiGLUAttrs, cast_to, gate_first),
    .doc = R"(y = up gate sigmoid(gate) of the halves of x's last axis, cast to cast_to.
x [.., 2 N], a float type; y [.., N]. The first half is `up` and the second the gate; the other way
round with gate_first. cast_to: another float type of the result.
Errors: a last axis that is odd or, with symbols, may be; a cast_to that is no float.
Compare: up, gate = x.chunk(2, -1); up * torch.nn.functional.silu(gate).)",
    .infer = infer_swiglu,
    .decompose = {.expand = expand_swiglu},
};

Value fused_matmul_bias_act(Builder& b, Value x, Value w, Value bias,
                            std::optional<ActivationKind> activation) {
  return b.op(kFusedMatMulBiasActOp, FusedMatMulBiasActAttrs{activation}, {x, w, bias});
}

Value fused_matmul_residual(Builder& b, Value x, Value w, Value residual) {
  return b.op(kFusedMatMulResidualOp, NoAttrs{}, {x, w, residual});
}

Value fused_conv_bias_act(Builder& b, Value x, Value w, Value bias, Value residual,
                          const ConvAttrs& conv, std::optional<ActivationKind> activation) {
  FusedConvBiasActAttrs a{conv.stride, conv.padding, conv.dilation,
                          conv.groups, activation,   residual.valid()};
  if (!residual.valid()) return b.op(kFusedConvBiasActOp, std::move(a), {x, w, bias});
  return b.op(kFusedConvBiasActOp, std::move(a), {x, w, bias, residual});
}

Value fused_residual_layer_norm(Builder& b, Value x, Value residual, Value bias, Value gamma,
                                Value beta, double eps) {
  const FusedResidualLNAttrs a{bias.valid(), eps};
  if (!bias.valid()) return b.op(kFusedResidualLNOp, a, {x, residual, gamma, beta});
  return b.op(kFusedResidualLNOp, a, {x, residual, bias, gamma, beta});
}

Value fused_residual_rms_norm(Builder& b, Value x, Value residual, Value bias, Value gamma,
                              Value beta, double eps) {
  const FusedResidualRmsNormAttrs a{bias.valid(), eps};
  if (!bias.valid()) return b.op(kFusedResidualRmsNormOp, a, {x, residual, gamma, beta});
  return b.op(kFusedResidualRmsNormOp, a, {x, residual, bias, gamma, beta});
}

Value fused_swiglu(Builder& b, Value x, FusedSwiGLUAttrs attrs) {
  return b.op(kFusedSwiGLUOp, attrs, {x});
}

}  // namespace rlx
