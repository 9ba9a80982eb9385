// Conversions of single numbers, written so that loops over them vectorize.
//   Convert<To, From>(v), ToOdd<From>(v)
// Include after "hwy/foreach_target.h"; lives in rlx::cpu::HWY_NAMESPACE.

#if defined(RLX_BACKEND_CPU_KERNELS_CAST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RLX_BACKEND_CPU_KERNELS_CAST_INL_H_
#undef RLX_BACKEND_CPU_KERNELS_CAST_INL_H_
#else
#define RLX_BACKEND_CPU_KERNELS_CAST_INL_H_
#endif

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

// The largest F below 2^digits of the integer type I, which F(max) may round up to.
template <class F, class I>
constexpr F LargestBelow() {
  constexpr int kDigits = std::numeric_limits<I>::digits;
  constexpr int kMantissa = std::numeric_limits<F>::digits;
  if constexpr (kDigits <= kMantissa) {
    return F(std::numeric_limits<I>::max());
  } else {
    return F(std::numeric_limits<I>::max() >> (kDigits - kMantissa) << (kDigits - kMantissa));
  }
}

// Cut off, saturated, NaN gives 0. The conversion itself only sees what the integer type holds.
template <class I, class F>
HWY_INLINE I Saturate(F v) {
  // Narrow types by way of i32: vectors convert to that.
  using Via = std::conditional_t<(sizeof(I) < 4), int32_t, I>;
  constexpr F kBottom = F(std::numeric_limits<I>::min()), kTop = LargestBelow<F, I>();
  const F above = v > kBottom ? v : kBottom;  // NaN too
  const F within = above < kTop ? above : kTop;
  Via cut = Via(within);
  if constexpr (std::numeric_limits<I>::digits > std::numeric_limits<F>::digits) {
    cut = v > kTop ? std::numeric_limits<I>::max() : cut;
  }
  return I(v == v ? cut : Via(0));
}

template <class To, class From>
HWY_INLINE To Convert(From v) {
  if constexpr (std::is_same_v<To, bool>) {
    return v != From(0);
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    return Saturate<To>(v);
  } else {
    return To(v);
  }
}

// A double as f32: itself if it fits, else the neighbour with an odd mantissa, from which every
// rounding to fewer bits goes the way that it would have gone from the double.
HWY_INLINE float OddFloat(double v) {
  const float nearest = float(v);
  const double back = nearest;
  const double size = v < 0 ? -v : v, back_size = back < 0 ? -back : back;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  bits -= uint32_t(back_size > size);  // toward zero; also from infinity to the largest number
  bits |= uint32_t(v == v && back != v);
  return std::bit_cast<float>(bits);
}

template <class From>
HWY_INLINE float ToOdd(From v) {
  if constexpr (std::is_same_v<From, float>) {
    return v;
  } else if constexpr (std::is_same_v<From, double> || sizeof(From) == 4) {
    return OddFloat(double(v));
  } else if constexpr (sizeof(From) < 4) {
    return float(v);
  } else {
    // 53 bits, the last of which says whether there was anything below.
    const bool large = v > (From(1) << 53) || (std::is_signed_v<From> && v < -(From(1) << 53));
    const From sticky = From((v & ~From(0xFFF)) | From((v & From(0xFFF)) != 0 ? 0x800 : 0));
    return OddFloat(double(large ? sticky : v));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#endif
