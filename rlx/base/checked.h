// Checked 64-bit size arithmetic: every product of dimensions or bytes goes through here.
#pragma once

#include <cstdint>

#include "rlx/base/error.h"

namespace rlx {

inline int64_t checked_mul(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) user_error("size overflow: {} * {} exceeds 64 bits", a, b);
  return r;
}
inline int64_t checked_add(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) user_error("size overflow: {} + {} exceeds 64 bits", a, b);
  return r;
}
inline int64_t checked_sub(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_sub_overflow(a, b, &r)) user_error("size overflow: {} - {} exceeds 64 bits", a, b);
  return r;
}

// Quotients rounded toward minus and plus infinity; b > 0.
inline int64_t floor_div(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}
inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b > 0); }
inline int64_t round_up(int64_t a, int64_t multiple) {
  return checked_mul(ceil_div(a, multiple), multiple);
}

}  // namespace rlx
