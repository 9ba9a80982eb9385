#include "rlx/backend/cpu/region/native.h"

#include "rlx/backend/cpu/kernels/elementwise_rows.h"
#include "rlx/ir/op.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/activation.h"
#include "rlx/ops/binary.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cast.h"
#include "rlx/ops/compare.h"

namespace rlx {

RLX_USE_OP(Activation);
RLX_USE_OP(ActivationBackward);
RLX_USE_OP(Binary);
RLX_USE_OP(Cast);
RLX_USE_OP(Compare);
RLX_USE_OP(Fma);
RLX_USE_OP(ReluBackward);
RLX_USE_OP(StopGradient);
RLX_USE_OP(Where);

namespace cpu::region {
namespace {

// Floats that registers hold.
bool is_lane_float(DType t, bool wide) { return is_float(t) && is_native(t, wide); }

NativeOp unary(StageOp op, bool is_long = false) {
  NativeOp n;
  n.unary = op;
  n.is_long = is_long;
  return n;
}

NativeOp binary(StageOp first, StageOp second) {
  return {StageOp::kCount, false, false, {first, second}};
}

NativeOp activation_op(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kNeg:
      return unary(StageOp::kNeg);
    case ActivationKind::kAbs:
      return unary(StageOp::kAbs);
    case ActivationKind::kSqrt:
      return unary(StageOp::kSqrt);
    case ActivationKind::kRsqrt:
      return unary(StageOp::kRsqrt);
    case ActivationKind::kRecip:
      return unary(StageOp::kRecip);
    case ActivationKind::kRelu:
      return unary(StageOp::kRelu);
    case ActivationKind::kFloor:
      return unary(StageOp::kFloor);
    case ActivationKind::kCeil:
      return unary(StageOp::kCeil);
    case ActivationKind::kRound:
      return unary(StageOp::kRound);
    case ActivationKind::kSign:
      return unary(StageOp::kSign);
    case ActivationKind::kExp:
      return unary(StageOp::kExp, true);
    case ActivationKind::kSigmoid:
      return unary(StageOp::kSigmoid, true);
    case ActivationKind::kTanh:
      return unary(StageOp::kTanh, true);
    case ActivationKind::kSilu:
      return unary(StageOp::kSilu, true);
    case ActivationKind::kGelu:
      return unary(StageOp::kGelu, true);
    case ActivationKind::kGeluApprox:
      return unary(StageOp::kGeluApprox, true);
    default:
      return {};
  }
}

NativeOp binary_op(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::kAdd:
      return binary(StageOp::kAdd, StageOp::kAdd);
    case BinaryKind::kSub:
      return binary(StageOp::kSub, StageOp::kRSub);
    case BinaryKind::kMul:
      return binary(StageOp::kMul, StageOp::kMul);
    case BinaryKind::kDiv:
      return binary(StageOp::kDiv, StageOp::kRDiv);
    case BinaryKind::kMax:
      return binary(StageOp::kMax, StageOp::kMax);
    case BinaryKind::kMin:
      return binary(StageOp::kMin, StageOp::kMin);
    default:
      return {};
  }
}

NativeOp bit_op(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::kBitAnd:
      return binary(StageOp::kAnd, StageOp::kAnd);
    case BinaryKind::kBitOr:
      return binary(StageOp::kOr, StageOp::kOr);
    case BinaryKind::kBitXor:
      return binary(StageOp::kXor, StageOp::kXor);
    default:
      return {};
  }
}

// The second form has the operands the other way round.
NativeOp compare_op(CompareKind kind) {
  switch (kind) {
    case CompareKind::kEq:
      return binary(StageOp::kEq, StageOp::kEq);
    case CompareKind::kNe:
      return binary(StageOp::kNe, StageOp::kNe);
    case CompareKind::kLt:
      return binary(StageOp::kLt, StageOp::kGt);
    case CompareKind::kLe:
      return binary(StageOp::kLe, StageOp::kGe);
    case CompareKind::kGt:
      return binary(StageOp::kGt, StageOp::kLt);
    case CompareKind::kGe:
      return binary(StageOp::kGe, StageOp::kLe);
  }
  return {};
}

NativeOp cast_op(DType from, DType to, bool wide) {
  if (from == DType::kBool && is_lane_float(to, wide)) return unary(StageOp::kMaskOne);
  if (to == DType::kBool && is_lane_float(from, wide)) return unary(StageOp::kNonZero);
  if (!is_half(to) || wide) return {};
  NativeOp op;
  op.rounds = from == DType::kF32 || is_half(from);
  return op;
}

}  // namespace

bool is_cast(const Node& n) { return n.op == &kCastOp; }

bool forwards(const Node& n, DType from) {
  if (n.op == &kStopGradientOp) return true;
  if (n.op != &kCastOp) return false;
  const DType to = n.attrs.as<CastAttrs>().to;
  return to == from || (is_half(from) && to == DType::kF32);
}

bool is_native(DType t, bool wide) {
  if (t == DType::kBool) return true;
  if (wide) return t == DType::kF64 || t == DType::kI64 || t == DType::kU64;
  return t == DType::kF32 || is_half(t) || t == DType::kI32 || t == DType::kU32;
}

NativeOp native_op(const Node& n, std::span<const DType> operands, bool wide) {
  const DType result = n.results[0].dtype, first = operands[0];
  if (n.op == &kCastOp) return cast_op(first, result, wide);
  if (n.op == &kWhereOp && is_native(result, wide)) {
    return {
        StageOp::kCount, false, false, {StageOp::kSelect, StageOp::kSelectYes, StageOp::kSelectNo}};
  }
  if (n.op == &kBinaryOp && !is_float(first) && is_native(first, wide)) {
    return bit_op(n.attrs.as<BinaryAttrs>().kind);
  }
  if (!is_lane_float(first, wide)) return {};
  if (n.op == &kBinaryOp) return binary_op(n.attrs.as<BinaryAttrs>().kind);
  if (n.op == &kCompareOp) return compare_op(n.attrs.as<CompareAttrs>().kind);
  if (n.op == &kActivationOp) return activation_op(n.attrs.as<ActivationAttrs>().kind);
  const bool relu_grad =
      n.op == &kReluBackwardOp || (n.op == &kActivationBackwardOp &&
                                   n.attrs.as<ActivationAttrs>().kind == ActivationKind::kRelu);
  if (relu_grad) return binary(StageOp::kReluGradOn, StageOp::kReluGradOf);
  if (n.op == &kFmaOp) {
    return {StageOp::kCount, false, false, {StageOp::kFma, StageOp::kFma, StageOp::kFmaTo}};
  }
  return {};
}

Graph absorb_negations(const Graph& body) {
  return rewrite(
      body,
      [](Builder& b, const Node& n, std::span<const Value> v) -> std::optional<std::vector<Value>> {
        if (n.op != &kBinaryOp || !is_float(n.results[0].dtype)) return std::nullopt;
        const BinaryKind kind = n.attrs.as<BinaryAttrs>().kind;
        const auto negated = [&](Value x) -> Value {
          const Node& of = b.node_of(x);
          const bool is_neg = of.op == &kActivationOp &&
                              of.attrs.as<ActivationAttrs>().kind == ActivationKind::kNeg;
          return is_neg ? of.operands[0] : Value{};
        };
        if (kind == BinaryKind::kAdd) {
          if (const Value y = negated(v[1]); y.valid()) return std::vector{sub(b, v[0], y)};
          if (const Value x = negated(v[0]); x.valid()) return std::vector{sub(b, v[1], x)};
        }
        if (kind == BinaryKind::kSub) {
          if (const Value y = negated(v[1]); y.valid()) return std::vector{add(b, v[0], y)};
        }
        return std::nullopt;
      });
}

bool can_run(const Node& n, std::span<const DType> operands) {
  return forwards(n, operands[0]) || elementwise_row(n, operands) != nullptr;
}

double stage_nanoseconds(StageOp op) {
  switch (op) {
    case StageOp::kExp:
      return 0.1;
    case StageOp::kSigmoid:
    case StageOp::kTanh:
    case StageOp::kSilu:
      return 0.25;
    case StageOp::kGelu:
    case StageOp::kGeluApprox:
      return 0.3;
    case StageOp::kDiv:
    case StageOp::kRDiv:
    case StageOp::kSqrt:
    case StageOp::kRecip:
      return 0.1;
    case StageOp::kRsqrt:
      return 0.2;
    case StageOp::kCall:
    case StageOp::kCallTo:
      return 0.05;
    default:
      return 0.01;
  }
}

double call_nanoseconds(const Node& n) {
  if (n.op == &kBinaryOp) {
    const BinaryKind kind = n.attrs.as<BinaryAttrs>().kind;
    const bool simple = kind != BinaryKind::kPow && kind != BinaryKind::kMod &&
                        kind != BinaryKind::kDiv && kind != BinaryKind::kAtan2;
    return simple ? 0.05 : 2;
  }
  return n.op == &kActivationOp || n.op == &kActivationBackwardOp ? 0.6 : 0.05;
}

}  // namespace cpu::region
}  // namespace rlx
