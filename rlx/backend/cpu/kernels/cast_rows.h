// Row functions of Cast, for the instruction set of the machine. Source and target f16 and bf16 are
// widened by the loop; numbers on their way to them are passed as f32 that are rounded to odd, so
// that the one rounding that follows is right.
#pragma once

#include "rlx/backend/cpu/kernels/elementwise_loop.h"

namespace rlx::cpu {

// Real numbers and bool to integers and bool.
RowFn cast_to_integer_row(DType from, DType to);
// Real numbers and bool to floats.
RowFn cast_to_float_row(DType from, DType to);
// From or to complex numbers.
RowFn cast_complex_row(DType from, DType to);

}  // namespace rlx::cpu
