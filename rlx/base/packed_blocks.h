// The codecs of packed dtypes: what the bits of a block mean, and how numbers become blocks. Plain
// code, one element after the other; kernels have vector code of their own, tested against this.
#pragma once

#include <cstdint>

#include "rlx/base/array.h"
#include "rlx/base/dtype.h"

namespace rlx {

// Layouts, little-endian; all are those of GGUF files.
//   q8_0: d f16, i8 q[32]; element e is d * q[e].
//   q4_0: d f16, u8 q[16]; element e is d * (c - 8), where c is the low half of q[e] for e < 16,
//   and
//         the high half of q[e - 16] for the others.
// Decoding is exact in f32: 11 bits times 8.
//
// Encoding follows the quantizers that the format is known by, in f32 without fused operations:
//   q8_0: d = amax / 127 with amax the largest |x|; q = x * (1 / d) rounded, halves away from zero.
//   q4_0: d = m / -8 with m the first x of largest magnitude; c = min(15, trunc(x * (1/d) + 8.5)).
// d is rounded to f16 where it is stored only; beyond f16 it becomes infinite. Where d is 0, or so
// small that 1/d is infinite, all codes are those of x = 0. A block that holds NaN or an infinity
// has a NaN for d and the codes of 0: it decodes to NaN.

// `count` elements, whole blocks. Throw Error(kInternal) for a dtype that is not packed.
void encode_packed(DType t, const float* from, int64_t count, void* to);
void decode_packed(DType t, const void* from, int64_t count, float* to);

// Whole arrays: f32 in and out, dense results. Throw Error(kUser) where the last axis is no whole
// number of blocks.
Array pack(const Array& values, DType to);
Array unpack(const Array& packed);

}  // namespace rlx
