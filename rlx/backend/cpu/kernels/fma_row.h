#pragma once

#include "rlx/backend/cpu/kernels/elementwise_loop.h"

namespace rlx::cpu {

// Row function of Fma for the instruction set of the machine: floats of 4 and 8 bytes, integers.
RowFn fma_row(DType dtype);

}  // namespace rlx::cpu
