// ReluBackward and ActivationBackward: dx = dy f'(x).
#include <numbers>

#include "rlx/ops/activation.h"
#include "rlx/ops/build.h"
#include "rlx/ops/compare.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(ReluBackward);
RLX_USE_OP(ActivationBackward);

namespace {

// ---- ReluBackward ----

std::vector<TensorType> infer_relu_backward(const InferContext& c) {
  expect_operands(c, 2);
  expect_dtype(c, 0, dtypes::kReals, "x");
  expect_same_type(c, 0, 1);
  return {c[0]};
}

Value relu_backward(Builder& b, Value x, Value dy) {
  return b.op(kReluBackwardOp, NoAttrs{}, {x, dy});
}

std::vector<Value> expand_relu_backward(Builder& b, const Attrs&, std::span<const Value> v) {
  const Value off = compare(b, CompareKind::kLe, v[0], zero_of(b, v[0]));
  return {where(b, off, zero_of(b, v[1]), v[1])};
}

// Linear in dy and constant in x wherever it has a derivative.
std::vector<Value> jvp_relu_backward(Builder& b, const RuleCall& call,
                                     std::span<const Value> tangents) {
  if (!tangents[1].valid()) return {Value{}};
  return {relu_backward(b, call.operands[0], tangents[1])};
}

std::vector<Value> vjp_relu_backward(Builder& b, const RuleCall& call,
                                     std::span<const Value> cotangents) {
  if (!is_differentiable(b.dtype(cotangents[0]))) return {Value{}, Value{}};
  return {Value{}, relu_backward(b, call.operands[0], cotangents[0])};
}

// ---- ActivationBackward ----

std::vector<TensorType> infer_activation_backward(const InferContext& c) {
  expect_operands(c, 2);
  const auto& a = c.as<ActivationAttrs>();
  const bool complex = a.kind == ActivationKind::kNeg || a.kind == ActivationKind::kRecip ||
                       a.kind == ActivationKind::kExp;
  const DTypeSet allowed = complex ? dtypes::kFloatsComplexes : dtypes::kFloats;
  if (!allowed.contains(c[0].dtype)) {
    user_error("{} does not accept {}, only: {}", enum_name(a.kind), to_string(c[0].dtype),
               allowed.to_string());
  }
  expect_same_type(c, 0, 1);
  if (a.straight_through && a.kind != ActivationKind::kRound) {
    user_error("straight_through is for Round, not for {}", enum_name(a.kind));
  }
  return {c[0]};
}

// The derivative at x as values of the graph. Formulas are chosen so that they keep their relative
// accuracy in the tails, give the limit at infinity, and have finite derivatives themselves.
struct Slope {
  Builder& b;
  Value x;

  Value act(ActivationKind kind, Value v) const { return activation(b, kind, v); }
  Value number(double v) const { return scalar(b, b.dtype(x), v); }
  Value one_minus(Value v) const { return sub(b, number(1), v); }
  Value recip(Value v) const { return act(ActivationKind::kRecip, v); }
  Value square(Value v) const { return mul(b, v, v); }
  Value abs(Value v) const { return act(ActivationKind::kAbs, v); }
  Value is(CompareKind kind, Value v, double bound) const {
    return compare(b, kind, v, number(bound));
  }
  // Where |x| > bound nothing changes any more: this keeps inf * 0 out.
  Value clamp(double bound) const {
    return minimum(b, maximum(b, x, number(-bound)), number(bound));
  }

  // sigmoid'(v) without 1 - sigmoid.
  Value sigmoid_slope(Value v) const { return mul(b, sigmoid(b, v), sigmoid(b, neg(b, v))); }

  Value gelu() const {
    const Value v = clamp(40);
    const Value erf = act(ActivationKind::kErf, mul(b, v, 1 / std::numbers::sqrt2));
    const Value density =
        mul(b, exp(b, mul(b, square(v), -0.5)), std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    return add(b, mul(b, add(b, erf, 1), 0.5), mul(b, v, density));
  }

  // With (1 + tanh u) / 2 = sigmoid(2u).
  Value gelu_approx() const {
    constexpr double kLinear = 2 * 0.7978845608028654, kCubic = kLinear * 0.044715;
    const Value v = clamp(40), v2 = square(v);
    const Value u = mul(b, v, add(b, mul(b, v2, kCubic), kLinear));
    const Value du = add(b, mul(b, v2, 3 * kCubic), kLinear);
    return add(b, sigmoid(b, u), mul(b, mul(b, v, du), sigmoid_slope(u)));
  }

  Value silu() const {
    const Value v = clamp(800);
    return add(b, sigmoid(b, v), mul(b, v, sigmoid_slope(v)));
  }

  Value mish() const {
    const Value v = clamp(800);
    const Value s = act(ActivationKind::kSoftplus, v);
    const Value inner = mul(b, tanh_slope(s), sigmoid(b, v));
    return add(b, tanh(b, s), mul(b, v, inner));
  }

  // 1 - tanh^2 = 4 sigmoid'(2v).
  Value tanh_slope(Value v) const { return mul(b, sigmoid_slope(add(b, v, v)), 4); }

  // -x^(-3/2) / 2
  Value rsqrt_slope() const { return mul(b, div(b, rsqrt(b, x), x), -0.5); }

  Value erf() const {
    return mul(b, exp(b, neg(b, square(clamp(40)))), 2 * std::numbers::inv_sqrtpi);
  }

  Value hard_swish() const {
    const Value middle = add(b, div(b, x, 3.0), 0.5);
    const Value upper = where(b, is(CompareKind::kGt, x, 3), number(1), middle);
    return where(b, is(CompareKind::kLt, x, -3), number(0), upper);
  }

  Value of(ActivationKind kind) const;
};

Value Slope::of(ActivationKind kind) const {
  switch (kind) {
    case ActivationKind::kGelu:
      return gelu();
    case ActivationKind::kGeluApprox:
      return gelu_approx();
    case ActivationKind::kSilu:
      return silu();
    case ActivationKind::kSigmoid:
      return sigmoid_slope(x);
    case ActivationKind::kTanh:
      return tanh_slope(x);
    case ActivationKind::kExp:
      return exp(b, x);
    case ActivationKind::kLog:
      return recip(x);
    case ActivationKind::kSqrt:
      return div(b, number(0.5), sqrt(b, x));
    case ActivationKind::kRsqrt:
      return rsqrt_slope();
    case ActivationKind::kAbs:
      return act(ActivationKind::kSign, x);
    case ActivationKind::kSin:
      return act(ActivationKind::kCos, x);
    case ActivationKind::kCos:
      return neg(b, act(ActivationKind::kSin, x));
    case ActivationKind::kTan:
      return add(b, square(act(ActivationKind::kTan, x)), 1);
    case ActivationKind::kAtan:
      return recip(add(b, square(x), 1));
    case ActivationKind::kRecip:
      return neg(b, square(recip(x)));
    case ActivationKind::kSoftplus:
      return sigmoid(b, x);
    case ActivationKind::kElu:
      return where(b, is(CompareKind::kGt, x, 0), number(1), exp(b, minimum(b, x, number(0))));
    case ActivationKind::kErf:
      return erf();
    case ActivationKind::kHardSwish:
      return hard_swish();
    case ActivationKind::kHardSigmoid:
      return where(b, is(CompareKind::kLt, abs(x), 3), number(1.0 / 6), number(0));
    case ActivationKind::kMish:
      return mish();
    case ActivationKind::kSoftsign:
      return square(recip(add(b, abs(x), 1)));
    case ActivationKind::kLogSigmoid:
      return sigmoid(b, neg(b, x));
    case ActivationKind::kRelu:
    case ActivationKind::kNeg:
    case ActivationKind::kRound:
    case ActivationKind::kFloor:
    case ActivationKind::kCeil:
    case ActivationKind::kSign:
      break;  // not a product with a slope
  }
  internal_error("ActivationBackward: {} has no slope", enum_name(kind));
}

std::vector<Value> expand_activation_backward(Builder& b, const Attrs& attrs,
                                              std::span<const Value> v) {
  const auto& a = attrs.as<ActivationAttrs>();
  const Value x = v[0], dy = v[1];
  switch (a.kind) {
    case ActivationKind::kRelu:
      return {relu_backward(b, x, dy)};
    case ActivationKind::kNeg:
      return {neg(b, dy)};
    case ActivationKind::kRound:
    case ActivationKind::kFloor:
    case ActivationKind::kCeil:
    case ActivationKind::kSign:
      return {a.straight_through ? dy : zeros_like(b, dy)};
    default:
      return {mul(b, dy, conjugate(b, Slope{b, x}.of(a.kind)))};
  }
}

}  // namespace

RLX_DEFINE_OP(ReluBackward) = {
    .name = "ReluBackward",
    .fields = RLX_FIELDS(NoAttrs),
    .flags = kElementwise,
    .doc =
        R"(dx = (x <= 0 ? 0 : dy), the derivative of Relu.
Operands: x, dy of one type, a float or integer dtype. Result: that type.
A selection: 0 at x = 0 whatever dy is; where x is NaN, dy passes.
Derivative: linear in dy, none for x.
Errors: operands of different types, bool or complex numbers.)",
    .infer = infer_relu_backward,
    .decompose = {.expand = expand_relu_backward},
    .jvp = jvp_relu_backward,
    .vjp = vjp_relu_backward,
    .batching = batch_leading,
};

RLX_DEFINE_OP(ActivationBackward) = {
    .name = "ActivationBackward",
    .fields = RLX_FIELDS(ActivationAttrs, kind, straight_through),
    .flags = kElementwise,
    .doc =
        R"(dx = dy conj(f'(x)), the derivative of Activation with the same attributes.
Operands: x, dy of one type; floats for every kind, complex numbers for Neg Recip Exp. Result: that
type.
f'(x), with P and p the distribution and density of the standard normal, s the sigmoid:
  Gelu         P(x) + x p(x)            GeluApprox   by the rules of tanh, u as in Activation
  Silu         s + x s (1 - s)          Mish         t + x (1 - t^2) s, t = tanh(ln(1 + e^x))
  Relu         as ReluBackward          Sigmoid      s (1 - s)
  Tanh         1 - tanh^2               Exp, Log     e^x, 1/x
  Sqrt, Rsqrt  x^(-1/2)/2, -x^(-3/2)/2  Neg, Abs     -1, sign(x)
  Sin, Cos     cos x, -sin x            Tan, Atan    1 + tan^2 x, 1/(1 + x^2)
  Recip        -1/x^2                   Softplus     s
  Elu          1, e^x for x <= 0        LogSigmoid   s(-x)
  Erf          2 e^(-x^2) / sqrt pi     Softsign     1/(1 + |x|)^2
  HardSwish    0 for x < -3, 1 for x > 3, else x/3 + 1/2
  HardSigmoid  1/6 for |x| < 3, else 0
  Round Floor Ceil Sign   0; Round with `straight_through` 1
f16 and bf16 are computed in f32 and rounded once. Where f' is 0 or 1 for the whole kind (the last
line), dx is 0 or dy whatever dy and x are. Elsewhere it is a product: NaN in x gives NaN, but 0 for
HardSigmoid; at infinity f' is the limit. Sqrt has inf and Rsqrt -inf at 0.
Derivative: that of the decomposition.
Errors: a dtype that the kind does not accept, operands of different types; straight_through with
another kind than Round.)",
    .infer = infer_activation_backward,
    .decompose = {.expand = expand_activation_backward},
    .batching = batch_leading,
    .cost = [](const CostContext& c) { return elementwise_cost(c, 20); },
};

Value activation_backward(Builder& b, ActivationKind kind, Value x, Value dy) {
  return b.op(kActivationBackwardOp, ActivationAttrs{kind, false}, {x, dy});
}

}  // namespace rlx
