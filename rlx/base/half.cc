#include "rlx/base/half.h"

#include <bit>
#include <cmath>
#include <limits>

namespace rlx {
namespace {

// Rounds a double to a binary format with `mant` stored mantissa bits and exponent bias `bias`
// (largest exponent field is 2*bias+1), to nearest even. Works on the exact double bits, so
// there is no double rounding.
uint16_t encode(double v, int mant, int bias) {
  const uint64_t bits = std::bit_cast<uint64_t>(v);
  const int exp_bits = 15 - mant;
  const uint16_t sign = uint16_t((bits >> 63) << 15);
  const uint16_t inf = uint16_t(((1u << exp_bits) - 1) << mant);
  if (std::isnan(v)) return uint16_t(sign | inf | (1u << (mant - 1)));
  if (std::isinf(v)) return uint16_t(sign | inf);
  if (v == 0) return sign;
  const int exponent = int((bits >> 52) & 0x7FF) - 1023;  // double subnormals are far below range
  const uint64_t fraction = (bits & ((uint64_t(1) << 52) - 1)) | (uint64_t(1) << 52);
  const int min_exponent = 1 - bias;
  // Number of low fraction bits to drop so that one unit is one ulp of the target.
  int drop = 52 - mant;
  if (exponent < min_exponent) drop += min_exponent - exponent;
  if (drop > 54) return sign;
  uint64_t kept = fraction >> drop;
  const uint64_t rest = fraction & ((uint64_t(1) << drop) - 1);
  const uint64_t half = uint64_t(1) << (drop - 1);
  if (rest > half || (rest == half && (kept & 1))) ++kept;
  // In the subnormal range the field is `kept` itself; a carry into bit `mant` becomes exponent 1.
  const uint64_t field =
      exponent < min_exponent ? kept : kept + (uint64_t(exponent - min_exponent) << mant);
  return field >= inf ? uint16_t(sign | inf) : uint16_t(sign | field);
}

}  // namespace

uint16_t f16_bits_from(double v) { return encode(v, 10, 15); }
uint16_t f16_bits_from(float v) { return encode(double(v), 10, 15); }
uint16_t bf16_bits_from(double v) { return encode(v, 7, 127); }

uint16_t bf16_bits_from(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  if (std::isnan(v)) return uint16_t((bits >> 16) | 0x40);
  return uint16_t((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float f16_bits_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16;
  const uint32_t exponent = (h >> 10) & 31, mantissa = h & 0x3FF;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent == 0) {
    const float value = std::ldexp(float(mantissa), -24);
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

float bf16_bits_to_float(uint16_t b) { return std::bit_cast<float>(uint32_t(b) << 16); }

}  // namespace rlx
