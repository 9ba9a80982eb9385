#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/gemm/gemm_f64.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep: includes this file once per instruction set
#include "hwy/highway.h"
#include "rlx/backend/cpu/gemm/gemm_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
const GemmKernels* table_f64() { return &Loops<double>::table(); }
}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {
HWY_EXPORT(table_f64);
const GemmKernels& gemm_kernels_f64() { return *HWY_DYNAMIC_DISPATCH(table_f64)(); }
}  // namespace rlx::cpu
#endif
