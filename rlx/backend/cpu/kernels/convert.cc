#include "rlx/backend/cpu/kernels/convert.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/convert.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

// Tails take the way of whole vectors, through a buffer, so that NaNs get the same bits everywhere.
template <class From, class To>
HWY_INLINE void Convert(const From* from, To* to, int64_t count) {
  const hn::ScalableTag<float> d;
  const auto n = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + n <= count; i += n) StoreF32(LoadF32(d, from + i), d, to + i);
  if (i == count) return;
  From in[hn::MaxLanes(d)] = {};
  To out[hn::MaxLanes(d)];
  std::memcpy(in, from + i, size_t(count - i) * sizeof(From));
  StoreF32(LoadF32(d, in), d, out);
  std::memcpy(to + i, out, size_t(count - i) * sizeof(To));
}

void F16ToF32(const uint16_t* from, float* to, int64_t count) {
  Convert(reinterpret_cast<const f16*>(from), to, count);
}
void BF16ToF32(const uint16_t* from, float* to, int64_t count) {
  Convert(reinterpret_cast<const bf16*>(from), to, count);
}
void F32ToF16(const float* from, uint16_t* to, int64_t count) {
  Convert(from, reinterpret_cast<f16*>(to), count);
}
void F32ToBF16(const float* from, uint16_t* to, int64_t count) {
  Convert(from, reinterpret_cast<bf16*>(to), count);
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(F16ToF32);
HWY_EXPORT(BF16ToF32);
HWY_EXPORT(F32ToF16);
HWY_EXPORT(F32ToBF16);

void f16_to_f32(const uint16_t* from, float* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(F16ToF32)(from, to, count);
}
void bf16_to_f32(const uint16_t* from, float* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(BF16ToF32)(from, to, count);
}
void f32_to_f16(const float* from, uint16_t* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(F32ToF16)(from, to, count);
}
void f32_to_bf16(const float* from, uint16_t* to, int64_t count) {
  HWY_DYNAMIC_DISPATCH(F32ToBF16)(from, to, count);
}

void widen_elements(DType dtype, const void* from, int64_t count, void* to) {
  if (dtype == DType::kF16) {
    f16_to_f32(static_cast<const uint16_t*>(from), static_cast<float*>(to), count);
  } else if (dtype == DType::kBF16) {
    bf16_to_f32(static_cast<const uint16_t*>(from), static_cast<float*>(to), count);
  } else {
    std::memcpy(to, from, size_t(count * size_of(dtype)));
  }
}

void narrow_elements(DType dtype, const void* from, int64_t count, void* to) {
  if (dtype == DType::kF16) {
    f32_to_f16(static_cast<const float*>(from), static_cast<uint16_t*>(to), count);
  } else if (dtype == DType::kBF16) {
    f32_to_bf16(static_cast<const float*>(from), static_cast<uint16_t*>(to), count);
  } else {
    std::memcpy(to, from, size_t(count * size_of(dtype)));
  }
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
