// Sets of dtypes that single families need; ops.def names them like those of rlx/base/dtype.h.
#pragma once

#include "rlx/base/dtype.h"

namespace rlx::dtypes {

// What quantization makes of floats, and both together.
inline constexpr DTypeSet kQuantized = DTypeSet(DType::kI8) | DType::kI16 | DType::kU8 | kPacked;
inline constexpr DTypeSet kFloatsQuantized = kFloats | kQuantized;
// Products of floats with packed weights, which add up in f32.
inline constexpr DTypeSet kPackedProducts =
    DTypeSet(DType::kF16) | DType::kBF16 | DType::kF32 | kPacked;
inline constexpr DTypeSet kInt8Products = DTypeSet(DType::kI8) | DType::kI32;

}  // namespace rlx::dtypes
