// Row functions of Binary by dtype class, for the instruction set of the machine.
#pragma once

#include "rlx/backend/cpu/kernels/elementwise_loop.h"
#include "rlx/ops/binary.h"

namespace rlx::cpu {

// f32 or f64.
RowFn binary_float_row(BinaryKind kind, DType dtype);
// Pow, Mod and Atan2 of f32 or f64: large functions in a file of their own.
RowFn binary_math_row(BinaryKind kind, DType dtype);
// Integers and bool.
RowFn binary_integer_row(BinaryKind kind, DType dtype);
// Add, Sub, Mul, Div of c64 or c128.
RowFn binary_complex_row(BinaryKind kind, DType dtype);

}  // namespace rlx::cpu
