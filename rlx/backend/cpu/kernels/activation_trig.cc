#include "rlx/backend/cpu/kernels/activation_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/activation_trig.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef RLX_KINDS
#define RLX_KINDS(M) M(Sin) M(Cos) M(Tan) M(Atan)
#endif

#include "rlx/backend/cpu/kernels/activation_part-inl.h"

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(ActivationPart);
HWY_EXPORT(ActivationBackwardPart);

RowFn activation_row_trig(ActivationKind kind, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(ActivationPart)(kind, dtype);
}
RowFn activation_backward_row_trig(ActivationKind kind, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(ActivationBackwardPart)(kind, dtype);
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
