#include "rlx/backend/cpu/int8/int8_kernels.h"

#include "hwy/targets.h"

namespace rlx::cpu {

std::span<const Int8Kernels* const> int8_kernels() {
  static const Int8Kernels* const kAll[] = {int8_kernels_vnni(), int8_kernels_avx2(),
                                            int8_kernels_scalar()};
  size_t first = 2;
#if HWY_ARCH_X86
  // Highway's name for AVX-512 with VNNI and its companions.
  const auto targets = hwy::SupportedTargets();
  if ((targets & HWY_AVX2) && kAll[1]) first = 1;
  if ((targets & HWY_AVX3_DL) && kAll[0]) first = 0;
#endif
  return std::span(kAll).subspan(first);
}

}  // namespace rlx::cpu
