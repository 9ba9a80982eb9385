// Rows of packed dtypes from and to floats, vectorized for the machine at hand: the bytes and the
// values of rlx/base/packed_blocks.h.
#pragma once

#include <cstdint>

#include "rlx/base/dtype.h"

namespace rlx::cpu {

// `count` elements, whole blocks. Values are decoded in f32 and rounded once to `to`; of f64 they
// are rounded to f32 before they are encoded.
void decode_row(DType packed, const void* from, int64_t count, DType to, void* out);
void encode_row(DType packed, DType from, const void* x, int64_t count, void* out);

}  // namespace rlx::cpu
