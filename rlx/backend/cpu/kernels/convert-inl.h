// Loads and stores that pass through f32: `T` is float, or f16 or bf16 of rlx/base/half.h. Include
// after "hwy/foreach_target.h"; lives in rlx::cpu::HWY_NAMESPACE.
//   Vec<DF> LoadF32(DF d, const T* from)      Lanes(d) elements, exactly
//   void StoreF32(Vec<DF> v, DF d, T* to)     rounded once, to nearest even

#if defined(RLX_BACKEND_CPU_KERNELS_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RLX_BACKEND_CPU_KERNELS_CONVERT_INL_H_
#undef RLX_BACKEND_CPU_KERNELS_CONVERT_INL_H_
#else
#define RLX_BACKEND_CPU_KERNELS_CONVERT_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

#include "rlx/base/half.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class DF>
HWY_INLINE hn::Vec<DF> LoadF32(DF d, const float* from) {
  return hn::LoadU(d, from);
}

template <class DF>
HWY_INLINE void StoreF32(hn::Vec<DF> v, DF d, float* to) {
  hn::StoreU(v, d, to);
}

template <class DF>
HWY_INLINE hn::Vec<DF> LoadF32(DF d, const bf16* from) {
  const hn::Rebind<uint16_t, DF> d16;
  const hn::RebindToUnsigned<DF> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

template <class DF>
HWY_INLINE void StoreF32(hn::Vec<DF> v, DF /*d*/, bf16* to) {
  const hn::Rebind<uint16_t, DF> d16;
  const hn::RebindToUnsigned<DF> d32;
  const auto bits = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7FFF)));
  // A NaN keeps its upper bits; setting one more keeps it from becoming infinity.
  const auto quiet = hn::Or(bits, hn::Set(d32, 0x400000));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));
  const auto upper = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
  hn::StoreU(hn::TruncateTo(d16, upper), d16, reinterpret_cast<uint16_t*>(to));
}

#if HWY_TARGET == HWY_SCALAR

template <class DF>
HWY_INLINE hn::Vec<DF> LoadF32(DF d, const f16* from) {
  return hn::Set(d, float(*from));
}

template <class DF>
HWY_INLINE void StoreF32(hn::Vec<DF> v, DF /*d*/, f16* to) {
  *to = f16(hn::GetLane(v));
}

#else

template <class DF>
HWY_INLINE hn::Vec<DF> LoadF32(DF d, const f16* from) {
  const hn::Rebind<hwy::float16_t, DF> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
}

template <class DF>
HWY_INLINE void StoreF32(hn::Vec<DF> v, DF /*d*/, f16* to) {
  const hn::Rebind<hwy::float16_t, DF> d16;
  hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(to));
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#endif
