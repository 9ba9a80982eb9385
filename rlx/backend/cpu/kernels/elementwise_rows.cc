#include "rlx/backend/cpu/kernels/elementwise_rows.h"

#include "rlx/backend/cpu/kernels/activation_rows.h"
#include "rlx/backend/cpu/kernels/binary_rows.h"
#include "rlx/backend/cpu/kernels/cast_rows.h"
#include "rlx/ir/op.h"
#include "rlx/ops/cast.h"

namespace rlx {

RLX_USE_OP(Activation);
RLX_USE_OP(ActivationBackward);
RLX_USE_OP(Binary);
RLX_USE_OP(Cast);
RLX_USE_OP(Compare);
RLX_USE_OP(Conjugate);
RLX_USE_OP(Fma);
RLX_USE_OP(ReluBackward);
RLX_USE_OP(Where);

namespace cpu {
namespace {

RowFn activation_of(ActivationKind kind, DType t) {
  if (is_complex(t)) return activation_complex_row(kind, t);
  return is_float(t) ? activation_row(kind, t) : activation_integer_row(kind, t);
}

RowFn activation_backward_of(const ActivationAttrs& a, DType t) {
  if (is_complex(t)) return activation_backward_complex_row(a.kind, t);
  if (a.kind == ActivationKind::kRelu) return relu_backward_row(t);
  return a.straight_through ? second_operand_row(t) : activation_backward_row(a.kind, t);
}

RowFn binary_of(BinaryKind kind, DType t) {
  if (is_complex(t)) return binary_complex_row(kind, t);
  return is_float(t) ? binary_float_row(kind, t) : binary_integer_row(kind, t);
}

RowFn cast_of(DType from, DType to) {
  if (is_complex(from) || is_complex(to)) return cast_complex_row(from, to);
  return is_float(to) ? cast_to_float_row(from, to) : cast_to_integer_row(from, to);
}

}  // namespace

RowFn elementwise_row(const Node& n, std::span<const DType> operands) {
  const OpDef* op = n.op;
  const DType t = operands.empty() ? DType::kF32 : operands[0];
  if (op == &kBinaryOp) return binary_of(n.attrs.as<BinaryAttrs>().kind, t);
  if (op == &kActivationOp) return activation_of(n.attrs.as<ActivationAttrs>().kind, t);
  if (op == &kActivationBackwardOp) {
    return activation_backward_of(n.attrs.as<ActivationAttrs>(), t);
  }
  if (op == &kCompareOp) return compare_row(n.attrs.as<CompareAttrs>().kind, t);
  if (op == &kCastOp) return cast_of(t, n.attrs.as<CastAttrs>().to);
  if (op == &kReluBackwardOp) return relu_backward_row(t);
  if (op == &kFmaOp) return fma_row(t);
  if (op == &kConjugateOp) return conjugate_row(t);
  if (op == &kWhereOp) return where_row(row_size(operands[1]));
  return nullptr;
}

}  // namespace cpu
}  // namespace rlx
