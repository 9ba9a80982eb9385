#pragma once

// What cpu_math_test.cc tests: the functions, their reference in a wider type, and inputs.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "rlx/base/philox.h"

// The functions under test: the activations, then what only math-inl.h has.
// clang-format off
#define RLX_TEST_ACTIVATIONS(X)                                                                  \
  X(Gelu) X(GeluApprox) X(Silu) X(Relu) X(Sigmoid) X(Tanh) X(Exp) X(Log) X(Sqrt) X(Rsqrt) X(Neg) \
  X(Abs) X(Sin) X(Cos) X(Tan) X(Atan) X(Recip) X(Round) X(Floor) X(Ceil) X(Sign) X(Softplus)     \
  X(Elu) X(Erf) X(HardSwish) X(HardSigmoid) X(Mish) X(Softsign) X(LogSigmoid)
// clang-format on
#define RLX_TEST_UNARY(X) X(Expm1) X(Log1p)
#define RLX_TEST_BINARY(X) X(Atan2) X(Pow) X(Mod)

namespace rlx::cpu {
enum class Fn {
#define RLX_NAME(Name) k##Name, k##Name##Grad,
  RLX_TEST_ACTIVATIONS(RLX_NAME)
#undef RLX_NAME
#define RLX_NAME(Name) k##Name,
      RLX_TEST_UNARY(RLX_NAME) RLX_TEST_BINARY(RLX_NAME)
#undef RLX_NAME
};

template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

// The type whose C library is the reference.
template <class T>
using Wide = std::conditional_t<sizeof(T) == 4, double, long double>;

// ---- Reference ----------------------------------------------------------------------------------

template <class R>
R sigmoid(R x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
template <class R>
R softplus(R x) {
  return (x < 0 ? R(0) : x) + std::log1p(std::exp(-std::fabs(x)));
}
template <class R>
R density(R x) {
  return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<R>);
}
template <class R>
R cdf(R x) {
  return std::erfc(-x / std::sqrt(R(2))) / 2;
}
template <class R>
R sech_square(R x) {
  const R c = std::cosh(x);
  return 1 / c / c;
}

template <class R>
R activation(Fn fn, R x) {
  const R c = std::sqrt(2 / std::numbers::pi_v<R>);
  const R u = c * (x + R(0.044715L) * x * x * x);
  switch (fn) {
    case Fn::kGelu:
      return x * cdf(x);
    case Fn::kGeluApprox:
      return x * sigmoid(2 * u);
    case Fn::kSilu:
      return x * sigmoid(x);
    case Fn::kRelu:
      return x <= 0 ? R(0) : x;
    case Fn::kSigmoid:
      return sigmoid(x);
    case Fn::kTanh:
      return std::tanh(x);
    case Fn::kExp:
      return std::exp(x);
    case Fn::kLog:
      return std::log(x);
    case Fn::kSqrt:
      return std::sqrt(x);
    case Fn::kRsqrt:
      return 1 / std::sqrt(x);
    case Fn::kNeg:
      return -x;
    case Fn::kAbs:
      return std::fabs(x);
    case Fn::kSin:
      return std::sin(x);
    case Fn::kCos:
      return std::cos(x);
    case Fn::kTan:
      return std::tan(x);
    case Fn::kAtan:
      return std::atan(x);
    case Fn::kRecip:
      return 1 / x;
    case Fn::kRound:
      return std::nearbyint(x);
    case Fn::kFloor:
      return std::floor(x);
    case Fn::kCeil:
      return std::ceil(x);
    case Fn::kSign:
      return std::isnan(x) ? x : R((x > 0) - (x < 0));
    case Fn::kSoftplus:
      return softplus(x);
    case Fn::kElu:
      return x > 0 ? x : std::expm1(x);
    case Fn::kErf:
      return std::erf(x);
    case Fn::kHardSwish:
      return x >= 3 ? x : x <= -3 ? R(-0.0) : x * (x + 3) / 6;
    case Fn::kHardSigmoid:
      return x >= 3 ? R(1) : x <= -3 ? R(0) : (x + 3) / 6;
    case Fn::kMish:
      return x * std::tanh(softplus(x));
    case Fn::kSoftsign:
      return x / (1 + std::fabs(x));
    case Fn::kLogSigmoid:
      return (x > 0 ? R(0) : x) - std::log1p(std::exp(-std::fabs(x)));
    case Fn::kExpm1:
      return std::expm1(x);
    case Fn::kLog1p:
      return std::log1p(x);
    default:
      throw std::logic_error("no reference");
  }
}

template <class R>
R gradient(Fn fn, R x) {
  const R c = std::sqrt(2 / std::numbers::pi_v<R>);
  const R u = c * (x + R(0.044715L) * x * x * x);
  const R t = std::tanh(softplus(x));
  switch (fn) {
    case Fn::kGeluGrad:
      return cdf(x) + x * density(x);
    case Fn::kGeluApproxGrad:
      return sigmoid(2 * u) + x / 2 * sech_square(u) * c * (1 + R(0.134145L) * x * x);
    case Fn::kSiluGrad:
      return sigmoid(x) * (1 + x * sigmoid(-x));
    case Fn::kReluGrad:
      return x <= 0 ? R(0) : R(1);
    case Fn::kSigmoidGrad:
      return sigmoid(x) * sigmoid(-x);
    case Fn::kTanhGrad:
      return sech_square(x);
    case Fn::kExpGrad:
      return std::exp(x);
    case Fn::kLogGrad:
      return 1 / x;
    case Fn::kSqrtGrad:
      return R(0.5) / std::sqrt(x);
    case Fn::kRsqrtGrad:
      return R(-0.5) / x / std::sqrt(x);
    case Fn::kNegGrad:
      return R(-1);
    case Fn::kAbsGrad:
      return activation(Fn::kSign, x);
    case Fn::kSinGrad:
      return std::cos(x);
    case Fn::kCosGrad:
      return -std::sin(x);
    case Fn::kTanGrad:
      return 1 + std::tan(x) * std::tan(x);
    case Fn::kAtanGrad:
      return 1 / (1 + x * x);
    case Fn::kRecipGrad:
      return -1 / (x * x);
    case Fn::kRoundGrad:
    case Fn::kFloorGrad:
    case Fn::kCeilGrad:
    case Fn::kSignGrad:
      return R(0);
    case Fn::kSoftplusGrad:
      return sigmoid(x);
    case Fn::kEluGrad:
      return x > 0 ? R(1) : std::exp(x);
    case Fn::kErfGrad:
      return 2 / std::sqrt(std::numbers::pi_v<R>) * std::exp(-x * x);
    case Fn::kHardSwishGrad:
      return x < -3 ? R(0) : x > 3 ? R(1) : (2 * x + 3) / 6;
    case Fn::kHardSigmoidGrad:
      return std::fabs(x) < 3 ? R(1) / 6 : R(0);
    case Fn::kMishGrad:
      return t + x * sech_square(softplus(x)) * sigmoid(x);
    case Fn::kSoftsignGrad:
      return 1 / ((1 + std::fabs(x)) * (1 + std::fabs(x)));
    case Fn::kLogSigmoidGrad:
      return sigmoid(-x);
    default:
      return activation(fn, x);
  }
}

template <class R>
R reference(Fn fn, R a, R b) {
  if (fn == Fn::kAtan2) return std::atan2(a, b);
  if (fn == Fn::kPow) return std::pow(a, b);
  if (fn == Fn::kMod) return std::fmod(a, b);
  return gradient(fn, a);
}

// ---- Inputs -------------------------------------------------------------------------------------

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

// Word i of a fixed random sequence.
inline uint64_t random_bits(uint64_t sequence, uint64_t i) {
  const PhiloxBlock block = philox_block(2024, sequence, i);
  return block.word[0] | uint64_t{block.word[1]} << 32;
}

template <class T>
T uniform(uint64_t sequence, uint64_t i, T low, T high) {
  return low +
         (high - low) * static_cast<T>(static_cast<double>(random_bits(sequence, i)) * 0x1p-64);
}

// One random value from each of n equal strata of the bit patterns: every exponent and sign alike.
template <class T>
std::vector<T> stratified(uint64_t sequence, size_t n) {
  std::vector<T> values;
  const Bits<T> stratum = std::numeric_limits<Bits<T>>::max() / n;
  for (size_t i = 0; i < n; ++i) {
    const T x =
        std::bit_cast<T>(static_cast<Bits<T>>(i * stratum + random_bits(sequence, i) % stratum));
    if (std::isfinite(x)) values.push_back(x);
  }
  return values;
}

// Around the places where an algorithm changes its ways.
template <class T>
void append_neighbours(T center, std::vector<T>& values) {
  T down = center, up = center;
  for (int i = 0; i < 3; ++i) {
    values.insert(values.end(), {down, up, -down, -up});
    down = std::nextafter(down, -kInfinity<T>);
    up = std::nextafter(up, kInfinity<T>);
  }
}

template <class T>
std::vector<T> unary_inputs(size_t n) {
  std::vector<T> values = stratified<T>(1, n / 3);
  for (size_t i = 0; i < n / 3; ++i) values.push_back(uniform<T>(2, i, T(-10), T(10)));
  // Where results grow, underflow and overflow.
  const T span = sizeof(T) == 4 ? T(110) : T(760);
  for (size_t i = 0; i < n / 6; ++i) values.push_back(uniform<T>(3, i, -span, span));
  // Next to multiples of pi/2, where the reduction cancels; some of them beyond its fast range.
  for (size_t i = 0; i < n / 6; ++i) {
    const double k = std::floor(std::pow(uniform<double>(4, i, 0, 1), 3) * 70000);
    values.push_back(static_cast<T>(k * (std::numbers::pi / 2)));
  }
  const double special[] = {0.29,
                            0.35,
                            0.375,
                            0.41,
                            0.41421356237309505,
                            0.5,
                            0.625,
                            0.75,
                            1.0,
                            1.06066,
                            1.5,
                            2.414213562373095,
                            2.5,
                            3.0,
                            4.5,
                            6.0,
                            6.5,
                            12,
                            13.0,
                            14.5,
                            15,
                            20,
                            26.6,
                            37.5,
                            38.6,
                            40,
                            60,
                            87.33,
                            88.72,
                            103.97,
                            150,
                            1e5,
                            708.39,
                            709.78,
                            745.13,
                            1000,
                            8388607.5,
                            0x1p52,
                            0x1p60};
  for (const double x : special) append_neighbours(static_cast<T>(x), values);
  append_neighbours(std::numeric_limits<T>::min(), values);
  values.insert(values.end(), {T(0), -T(0), std::numeric_limits<T>::denorm_min(),
                               -std::numeric_limits<T>::denorm_min(), std::numeric_limits<T>::max(),
                               std::numeric_limits<T>::lowest()});
  return values;
}

template <class T>
struct Pairs {
  std::vector<T> a, b;
  void push(T x, T y) {
    a.push_back(x);
    b.push_back(y);
  }
};

template <class T>
Pairs<T> binary_inputs(size_t n) {
  Pairs<T> pairs;
  const std::vector<T> any = stratified<T>(5, n / 4);
  for (size_t i = 0; i < any.size(); ++i) {
    const T x = any[i], y = any[random_bits(6, i) % any.size()];
    pairs.push(x, y);
    // Near quotients, also for Atan2's diagonal.
    pairs.push(x, x * uniform<T>(7, i, T(-8), T(8)));
  }
  for (size_t i = 0; i < n / 4; ++i) {
    // For Pow: results of every size, and exponents that are integers.
    const T x = std::exp2(uniform<T>(8, i, T(-20), T(20)));
    const T range = (sizeof(T) == 4 ? T(155) : T(1080)) / std::max(T(0.1), std::fabs(std::log2(x)));
    const T y = uniform<T>(9, i, -range, range);
    pairs.push(x, y);
    pairs.push(i % 2 ? -x : x, std::trunc(y));
    // Bases next to 1 with large exponents.
    pairs.push(1 + uniform<T>(10, i, T(-1e-3), T(1e-3)), uniform<T>(11, i, T(-1e5), T(1e5)));
  }
  return pairs;
}

// out = fn(a, b) on n elements with the instruction set that Highway has chosen; unary functions
// ignore b. The narrow forms use vectors of at most two lanes and know a few functions of every
// make. Defined in cpu_math_f32.cc and cpu_math_f64.cc.
void evaluate_vectors(Fn fn, const float* a, const float* b, float* out, size_t n);
void evaluate_vectors(Fn fn, const double* a, const double* b, double* out, size_t n);
void evaluate_narrow_vectors(Fn fn, const float* a, const float* b, float* out, size_t n);
void evaluate_narrow_vectors(Fn fn, const double* a, const double* b, double* out, size_t n);

}  // namespace rlx::cpu
