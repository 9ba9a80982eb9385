#include "rlx/ops/activation.h"

#include "rlx/ops/build.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Activation);
RLX_USE_OP(ReluBackward);
RLX_USE_OP(ActivationBackward);

namespace {

DTypeSet accepted(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kNeg:
      return dtypes::kNumbers;
    case ActivationKind::kAbs:
    case ActivationKind::kSign:
    case ActivationKind::kRelu:
    case ActivationKind::kRound:
    case ActivationKind::kFloor:
    case ActivationKind::kCeil:
      return dtypes::kReals;
    case ActivationKind::kRecip:
    case ActivationKind::kExp:
      return dtypes::kFloatsComplexes;
    default:
      return dtypes::kFloats;
  }
}

std::vector<TensorType> infer_activation(const InferContext& c) {
  expect_operands(c, 1);
  const auto& a = c.as<ActivationAttrs>();
  const DTypeSet allowed = accepted(a.kind);
  if (!allowed.contains(c[0].dtype)) {
    user_error("{} does not accept {}, only: {}", enum_name(a.kind), to_string(c[0].dtype),
               allowed.to_string());
  }
  if (a.straight_through && a.kind != ActivationKind::kRound) {
    user_error("straight_through is for Round, not for {}", enum_name(a.kind));
  }
  return {c[0]};
}

std::vector<Value> vjp_activation(Builder& b, const RuleCall& call,
                                  std::span<const Value> cotangents) {
  const auto& a = call.as<ActivationAttrs>();
  const Value x = call.operands[0], g = cotangents[0];
  if (!is_differentiable(b.dtype(x))) return {Value{}};
  switch (a.kind) {
    case ActivationKind::kNeg:
      return {neg(b, g)};
    case ActivationKind::kRound:
      return {a.straight_through ? g : Value{}};
    case ActivationKind::kFloor:
    case ActivationKind::kCeil:
    case ActivationKind::kSign:
      return {Value{}};
    case ActivationKind::kRelu:
      return b.call(kReluBackwardOp, Attrs::of(kReluBackwardOp.fields, NoAttrs{}), {x, g});
    default:
      return b.call(kActivationBackwardOp, call.attrs, {x, g});
  }
}

Cost cost_activation(const CostContext& c) {
  switch (c.attrs.as<ActivationAttrs>().kind) {
    case ActivationKind::kRelu:
    case ActivationKind::kNeg:
    case ActivationKind::kAbs:
    case ActivationKind::kRound:
    case ActivationKind::kFloor:
    case ActivationKind::kCeil:
    case ActivationKind::kSign:
      return elementwise_cost(c, 1);
    case ActivationKind::kSqrt:
    case ActivationKind::kRsqrt:
    case ActivationKind::kRecip:
    case ActivationKind::kHardSwish:
    case ActivationKind::kHardSigmoid:
    case ActivationKind::kSoftsign:
      return elementwise_cost(c, 4);
    default:
      return elementwise_cost(c, 20);
  }
}

}  // namespace

RLX_DEFINE_OP(Activation) = {
    .name = "Activation",
    .fields = RLX_FIELDS(ActivationAttrs, kind, straight_through),
    .flags = kElementwise,
    .doc =
        R"(y = f(x) element by element.
Operands: x, any shape; floats for every kind, integers for Neg Abs Sign Relu Round Floor Ceil,
complex numbers for Neg Recip Exp. Result: the type of x.
  Gelu         x (1 + erf(x / sqrt 2)) / 2
  GeluApprox   x (1 + tanh u) / 2, u = sqrt(2/pi) (x + 0.044715 x^3)
  Silu         x / (1 + e^-x)
  Relu         x, 0 for x <= 0          Sigmoid      1 / (1 + e^-x)
  Tanh Exp Log Sqrt Sin Cos Tan Atan Erf             as in C; Log is the natural one
  Rsqrt        1 / sqrt x               Recip        1 / x
  Neg          -x                       Abs          |x|
  Round        to nearest, ties to even Floor Ceil   as in C
  Sign         -1, 0 or 1               Softplus     ln(1 + e^x)
  Elu          x, e^x - 1 for x <= 0    LogSigmoid   -ln(1 + e^-x)
  HardSwish    x clamp(x + 3, 0, 6) / 6 HardSigmoid  clamp(x + 3, 0, 6) / 6
  Mish         x tanh(ln(1 + e^x))      Softsign     x / (1 + |x|)
Floats: f16 and bf16 are computed in f32 and rounded once. NaN gives NaN for every kind. At infinity
the value is the limit (Silu, Gelu, Mish, HardSwish at -inf give a zero; Softsign at +-inf gives
+-1). Log(0) = -inf, Rsqrt(0) = inf, Recip(-0) = -inf; Log, Sqrt, Rsqrt of negative numbers are NaN,
Sqrt(-0) = -0. Integers wrap: Neg and Abs of the smallest number are that number; Round, Floor, Ceil
leave x as it is. Complex numbers with parts that are infinite or NaN have no special treatment.
Derivatives: see ReluBackward and ActivationBackward. Round, Floor, Ceil and Sign have 0, but Round
with `straight_through` passes the cotangent unchanged. Relu and Abs have 0 at 0.
Errors: a dtype that the kind does not accept; straight_through with another kind than Round.)",
    .infer = infer_activation,
    .jvp = jvp_by_vjp,
    .vjp = vjp_activation,
    .batching = batch_elementwise,
    .cost = cost_activation,
};

Value activation(Builder& b, ActivationKind kind, Value x) {
  return b.op(kActivationOp, ActivationAttrs{kind, false}, {x});
}
Value relu(Builder& b, Value x) { return activation(b, ActivationKind::kRelu, x); }
Value neg(Builder& b, Value x) { return activation(b, ActivationKind::kNeg, x); }
Value exp(Builder& b, Value x) { return activation(b, ActivationKind::kExp, x); }
Value log(Builder& b, Value x) { return activation(b, ActivationKind::kLog, x); }
Value tanh(Builder& b, Value x) { return activation(b, ActivationKind::kTanh, x); }
Value sigmoid(Builder& b, Value x) { return activation(b, ActivationKind::kSigmoid, x); }
Value sqrt(Builder& b, Value x) { return activation(b, ActivationKind::kSqrt, x); }
Value rsqrt(Builder& b, Value x) { return activation(b, ActivationKind::kRsqrt, x); }

}  // namespace rlx
