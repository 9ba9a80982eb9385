// Vector mathematics for the CPU kernels, f32 and f64, for every instruction set: the polynomials
// of rlx/base/math_*-inl.h over a Highway policy. Include after "hwy/foreach_target.h"; the
// functions live in rlx::cpu::HWY_NAMESPACE and take any Highway tag D, partial vectors included.
//
//   Exp Expm1 Log Log1p Tanh Sigmoid Erf Sin Cos Tan Atan Rsqrt Round Floor Ceil: V F(D d, V x)
//   Atan2(d, y, x), Pow(d, x, y), Mod(d, x, y): V F(D d, V a, V b)
//
// Lanes are independent: an input gives the same bits in every lane, tail and vector width, and on
// every instruction set: all of them fuse multiply-add. SCALAR has no instruction for it and calls
// std::fma, which makes it correct rather than fast.
//
// Accuracy over the whole domain, subnormals included: at most 2 ulp for f32 and f64 (1 for Exp,
// Log, Log1p, Sin, Cos, Atan and Pow); Mod, Round, Floor and Ceil are exact. Edges are those of C's
// functions; Round takes ties to even.
//
// Slow paths, by lane through the C library: Sin, Cos, Tan for |x| > 1e5; Mod for quotients from
// 2^22 (f32) or 2^51 (f64), a zero divisor or an infinite dividend.

#if defined(RLX_BACKEND_CPU_KERNELS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RLX_BACKEND_CPU_KERNELS_MATH_INL_H_
#undef RLX_BACKEND_CPU_KERNELS_MATH_INL_H_
#else
#define RLX_BACKEND_CPU_KERNELS_MATH_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Pairs of vectors only stay in registers when everything is inlined.
#pragma push_macro("RLX_MATH_FN")
#undef RLX_MATH_FN
#define RLX_MATH_FN HWY_INLINE
// Each needs the one before.
#include "rlx/base/math_poly-inl.h"

#include "rlx/base/math_trig-inl.h"

#include "rlx/base/math_activation-inl.h"
#pragma pop_macro("RLX_MATH_FN")

// Lanes beyond kTrigLimit by the C library, whose reduction is exact. Out of line: rare and large.
template <class D>
static HWY_NOINLINE void trig_far_lanes(D /*d*/, TrigKind kind, const hn::TFromD<D>* x,
                                        hn::TFromD<D>* y, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const double v = x[i];
    if (!(std::fabs(v) > kTrigLimit)) continue;
    const double r = kind == TrigKind::kSin   ? std::sin(v)
                     : kind == TrigKind::kCos ? std::cos(v)
                                              : std::tan(v);
    y[i] = static_cast<hn::TFromD<D>>(r);
  }
}

// The math policy of "rlx/base/math_poly-inl.h" for vectors of the tag D.
template <class D>
struct VectorMath {
  using T = hn::TFromD<D>;
  using DU = hn::RebindToUnsigned<D>;
  using V = hn::Vec<D>;
  using U = hn::Vec<DU>;
  using M = hn::Mask<D>;

  static HWY_INLINE V set(double x) { return hn::Set(D(), static_cast<T>(x)); }
  static HWY_INLINE U uset(uint64_t x) { return hn::Set(DU(), static_cast<hn::TFromD<DU>>(x)); }
#if HWY_TARGET == HWY_SCALAR
  // Highway's own versions here multiply and add with two roundings, and its roundings to integers
  // are wrong for 0.49999997f and +0.
  static HWY_INLINE V fma(V a, V b, V c) { return V(std::fma(a.raw, b.raw, c.raw)); }
  static HWY_INLINE V fnma(V a, V b, V c) { return V(std::fma(-a.raw, b.raw, c.raw)); }
  static HWY_INLINE V trunc(V a) { return V(std::trunc(a.raw)); }
  static HWY_INLINE V floor(V a) { return V(std::floor(a.raw)); }
  static HWY_INLINE V ceil(V a) { return V(std::ceil(a.raw)); }
  static HWY_INLINE V round(V a) { return V(std::nearbyint(a.raw)); }
#else
  static HWY_INLINE V fma(V a, V b, V c) { return hn::MulAdd(a, b, c); }
  static HWY_INLINE V fnma(V a, V b, V c) { return hn::NegMulAdd(a, b, c); }
  static HWY_INLINE V trunc(V a) { return hn::Trunc(a); }
  static HWY_INLINE V floor(V a) { return hn::Floor(a); }
  static HWY_INLINE V ceil(V a) { return hn::Ceil(a); }
  static HWY_INLINE V round(V a) { return hn::Round(a); }
#endif
  static HWY_INLINE V neg(V a) { return hn::Neg(a); }
  static HWY_INLINE V abs(V a) { return hn::Abs(a); }
  static HWY_INLINE V sqrt(V a) { return hn::Sqrt(a); }
  static HWY_INLINE V copysign(V magnitude, V sign) { return hn::CopySign(magnitude, sign); }
  static HWY_INLINE V select(M mask, V yes, V no) { return hn::IfThenElse(mask, yes, no); }
  static HWY_INLINE M both(M a, M b) { return hn::And(a, b); }
  static HWY_INLINE M either(M a, M b) { return hn::Or(a, b); }
  static HWY_INLINE U bits(V a) { return hn::BitCast(DU(), a); }
  static HWY_INLINE V from_bits(U a) { return hn::BitCast(D(), a); }
  static HWY_INLINE U uadd(U a, U b) { return hn::Add(a, b); }
  static HWY_INLINE U uand(U a, U b) { return hn::And(a, b); }
  static HWY_INLINE U uor(U a, U b) { return hn::Or(a, b); }
  static HWY_INLINE U uxor(U a, U b) { return hn::Xor(a, b); }
  template <int kBits>
  static HWY_INLINE U shl(U a) {
    return hn::ShiftLeft<kBits>(a);
  }
  template <int kBits>
  static HWY_INLINE U shr(U a) {
    return hn::ShiftRight<kBits>(a);
  }
  static HWY_INLINE M odd(U a) { return hn::RebindMask(D(), hn::TestBit(a, uset(1))); }

  static HWY_INLINE V trig_far(TrigKind kind, V x, V near) {
    const D d;
    if (HWY_LIKELY(hn::AllFalse(d, set(kTrigLimit) < abs(x)))) return near;
    HWY_ALIGN T in[hn::MaxLanes(D())], out[hn::MaxLanes(D())];
    hn::Store(x, d, in);
    hn::Store(near, d, out);
    trig_far_lanes(d, kind, in, out, hn::Lanes(d));
    return hn::Load(d, out);
  }

  static HWY_INLINE V fmod_far(M far, V x, V y, V near) {
    const D d;
    if (HWY_LIKELY(hn::AllFalse(d, far))) return near;
    HWY_ALIGN T a[hn::MaxLanes(D())], b[hn::MaxLanes(D())];
    hn::Store(x, d, a);
    hn::Store(y, d, b);
    for (size_t i = 0; i < hn::Lanes(d); ++i) a[i] = std::fmod(a[i], b[i]);
    return hn::IfThenElse(far, hn::Load(d, a), near);
  }
};

template <class D, class V>
HWY_INLINE V Exp(D /*d*/, V x) {
  return exp_core<VectorMath<D>>(x);
}

template <class D, class V>
HWY_INLINE V Expm1(D /*d*/, V x) {
  return expm1_core<VectorMath<D>>(x);
}

template <class D, class V>
HWY_INLINE V Log(D /*d*/, V x) {
  return log_core<VectorMath<D>>(x);
}

template <class D, class V>
HWY_INLINE V Log1p(D /*d*/, V x) {
  return log1p_core<VectorMath<D>>(x);
}

template <class D, class V>
HWY_INLINE V Tanh(D /*d*/, V x) {
  return tanh_core<VectorMath<D>>(x);
}

template <class D, class V>
HWY_INLINE V Sigmoid(D /*d*/, V x) {
  return sigmoid_core<VectorMath<D>>(x);
}

template <class D, class V>
HWY_INLINE V Erf(D /*d*/, V x) {
  return erf_core<VectorMath<D>>(x);
}

template <class D, class V>
HWY_INLINE V Sin(D /*d*/, V x) {
  return sin_core<VectorMath<D>>(x);
}

template <class D, class V>
HWY_INLINE V Cos(D /*d*/, V x) {
  return cos_core<VectorMath<D>>(x);
}

template <class D, class V>
HWY_INLINE V Tan(D /*d*/, V x) {
  return tan_core<VectorMath<D>>(x);
}

template <class D, class V>
HWY_INLINE V Atan(D /*d*/, V x) {
  return atan_core<VectorMath<D>>(x);
}

template <class D, class V>
HWY_INLINE V Rsqrt(D /*d*/, V x) {
  return rsqrt<VectorMath<D>>(x);
}

template <class D, class V>  // ties to even
HWY_INLINE V Round(D /*d*/, V x) {
  return VectorMath<D>::round(x);
}

template <class D, class V>
HWY_INLINE V Floor(D /*d*/, V x) {
  return VectorMath<D>::floor(x);
}

template <class D, class V>
HWY_INLINE V Ceil(D /*d*/, V x) {
  return VectorMath<D>::ceil(x);
}

template <class D, class V>
HWY_INLINE V Atan2(D /*d*/, V y, V x) {
  return atan2_core<VectorMath<D>>(y, x);
}

template <class D, class V>
HWY_INLINE V Pow(D /*d*/, V x, V y) {
  return pow_core<VectorMath<D>>(x, y);
}

template <class D, class V>
HWY_INLINE V Mod(D /*d*/, V x, V y) {
  return fmod_core<VectorMath<D>>(x, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#endif
