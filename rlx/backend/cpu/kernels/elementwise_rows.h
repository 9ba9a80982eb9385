// The row function of any elementwise call.
#pragma once

#include <span>

#include "rlx/backend/cpu/kernels/convert.h"
#include "rlx/backend/cpu/kernels/elementwise_loop.h"
#include "rlx/ir/graph.h"
#include "rlx/ops/compare.h"

namespace rlx::cpu {

// Bytes of an element as row functions see it.
inline int64_t row_size(DType t) { return is_half(t) ? int64_t(sizeof(float)) : size_of(t); }

RowFn compare_row(CompareKind kind, DType dtype);
RowFn where_row(int64_t element_size);
RowFn conjugate_row(DType dtype);
RowFn fma_row(DType dtype);  // floats and integers

// What the kernel of the node's op would run; null if there is none. 16-bit floats are seen as f32
// by it on both sides, and a Cast to them leaves the rounding from f32 to be done.
RowFn elementwise_row(const Node& node, std::span<const DType> operands);

}  // namespace rlx::cpu
