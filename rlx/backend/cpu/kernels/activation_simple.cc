#include "rlx/backend/cpu/kernels/activation_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/activation_simple.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef RLX_KINDS
#define RLX_KINDS(M) \
  M(Sqrt)            \
  M(Rsqrt)           \
  M(Abs)             \
  M(Recip) M(HardSwish) M(HardSigmoid) M(Softsign) M(Relu) M(Neg) M(Round) M(Floor) M(Ceil) M(Sign)
#endif

#include "rlx/backend/cpu/kernels/activation_part-inl.h"

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(ActivationPart);
HWY_EXPORT(ActivationBackwardPart);

RowFn activation_row_simple(ActivationKind kind, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(ActivationPart)(kind, dtype);
}
RowFn activation_backward_row_simple(ActivationKind kind, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(ActivationBackwardPart)(kind, dtype);
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
