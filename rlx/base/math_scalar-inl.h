#pragma once

// The project's vector mathematics for one float or double at a time: the same polynomials, and so
// the same bits, as the CPU kernels. For emulation and scalar code; the reference backend
// deliberately uses the C library instead.

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace rlx {

// Each needs the one before.
#include "rlx/base/math_poly-inl.h"

#include "rlx/base/math_trig-inl.h"

#include "rlx/base/math_activation-inl.h"

// The C library's function; beyond kTrigLimit its reduction is exact. f32 callers round once more.
inline double trig_by_library(TrigKind kind, double x) {
  return kind == TrigKind::kSin ? std::sin(x) : kind == TrigKind::kCos ? std::cos(x) : std::tan(x);
}

template <class Float>
struct ScalarMath {
  using T = Float;
  using V = Float;
  using U = std::conditional_t<sizeof(Float) == 4, uint32_t, uint64_t>;
  using M = bool;

  static V set(double x) { return static_cast<V>(x); }
  static U uset(uint64_t x) { return static_cast<U>(x); }
  static V fma(V a, V b, V c) { return std::fma(a, b, c); }
  static V fnma(V a, V b, V c) { return std::fma(-a, b, c); }
  static V neg(V a) { return -a; }
  static V abs(V a) { return std::fabs(a); }
  static V sqrt(V a) { return std::sqrt(a); }
  static V trunc(V a) { return std::trunc(a); }
  static V copysign(V magnitude, V sign) { return std::copysign(magnitude, sign); }
  static V select(M mask, V yes, V no) { return mask ? yes : no; }
  static M both(M a, M b) { return a && b; }
  static M either(M a, M b) { return a || b; }
  static U bits(V a) { return std::bit_cast<U>(a); }
  static V from_bits(U a) { return std::bit_cast<V>(a); }
  static U uadd(U a, U b) { return a + b; }
  static U uand(U a, U b) { return a & b; }
  static U uor(U a, U b) { return a | b; }
  static U uxor(U a, U b) { return a ^ b; }
  template <int kBits>
  static U shl(U a) {
    return a << kBits;
  }
  template <int kBits>
  static U shr(U a) {
    return a >> kBits;
  }
  static M odd(U a) { return (a & 1) != 0; }
  static V floor(V a) { return std::floor(a); }
  static V ceil(V a) { return std::ceil(a); }
  static V round(V a) { return std::nearbyint(a); }
  static V trig_far(TrigKind kind, V x, V near) {
    if (!(std::fabs(x) > kTrigLimit)) return near;
    return static_cast<V>(trig_by_library(kind, x));
  }
  static V fmod_far(M far, V x, V y, V near) { return far ? std::fmod(x, y) : near; }
};

}  // namespace rlx
