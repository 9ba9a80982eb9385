// f16 and bf16 (as bits) from and to f32, vectorized for the machine at hand. To 16 bits: rounded
// to nearest even, subnormals kept, overflow to infinity, NaN to a quiet NaN.
#pragma once

#include <cstdint>

#include "rlx/base/dtype.h"

namespace rlx::cpu {

// The dtypes that kernels compute in f32.
inline bool is_half(DType t) { return t == DType::kF16 || t == DType::kBF16; }

void f16_to_f32(const uint16_t* from, float* to, int64_t count);
void bf16_to_f32(const uint16_t* from, float* to, int64_t count);
void f32_to_f16(const float* from, uint16_t* to, int64_t count);
void f32_to_bf16(const float* from, uint16_t* to, int64_t count);

// Elements of a float dtype to f32 (f64 stays) and back.
void widen_elements(DType dtype, const void* from, int64_t count, void* to);
void narrow_elements(DType dtype, const void* from, int64_t count, void* to);

}  // namespace rlx::cpu
