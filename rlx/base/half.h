// f16 (IEEE binary16) and bf16 as storage types. Conversions round to nearest even, once, also
// from double; NaN stays NaN, overflow gives infinity, subnormals are kept.
#pragma once

#include <cstdint>

namespace rlx {

uint16_t f16_bits_from(float v);
uint16_t f16_bits_from(double v);
float f16_bits_to_float(uint16_t bits);
uint16_t bf16_bits_from(float v);
uint16_t bf16_bits_from(double v);
float bf16_bits_to_float(uint16_t bits);

struct f16 {
  uint16_t bits = 0;
  f16() = default;
  explicit f16(float v) : bits(f16_bits_from(v)) {}
  explicit f16(double v) : bits(f16_bits_from(v)) {}
  explicit operator float() const { return f16_bits_to_float(bits); }
  explicit operator double() const { return f16_bits_to_float(bits); }
  static f16 from_bits(uint16_t b) {
    f16 r;
    r.bits = b;
    return r;
  }
  bool operator==(const f16&) const = default;  // of bits: for containers, not arithmetic
};

struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float v) : bits(bf16_bits_from(v)) {}
  explicit bf16(double v) : bits(bf16_bits_from(v)) {}
  explicit operator float() const { return bf16_bits_to_float(bits); }
  explicit operator double() const { return bf16_bits_to_float(bits); }
  static bf16 from_bits(uint16_t b) {
    bf16 r;
    r.bits = b;
    return r;
  }
  bool operator==(const bf16&) const = default;
};

}  // namespace rlx
