// The arithmetic of Reduce, by kind and dtype, behind plain functions: the loops around it
// (reduce.cc) are the same for all.
#pragma once

#include <cstdint>

#include "rlx/base/dtype.h"
#include "rlx/ops/reduce.h"

namespace rlx::cpu {

inline constexpr int64_t kReduceLanes = 64;

// Partial sums ("acc") have the type of the elements, or f32 for 16-bit floats.
struct ReduceOps {
  int64_t element_bytes = 0, acc_bytes = 0;
  bool same_type = false;           // elements can be read as partial sums
  alignas(16) char identity[16]{};  // one partial sum
  // a[i] = a[i] op b[i]
  void (*combine)(void* a, const void* b, int64_t n) = nullptr;
  // n blocks of kReduceLanes elements, lane by lane: lanes[l] = lanes[l] op x[l], block by block
  void (*blocks)(void* lanes, const void* x, int64_t n) = nullptr;
  // to[i] = x[i * stride], at most kReduceStage elements
  void (*load)(const void* x, int64_t stride, int64_t n, void* to) = nullptr;
  // y[i * stride] = acc[i], divided by `length` for the mean
  void (*store)(const void* acc, int64_t n, bool mean, int64_t length, void* y,
                int64_t stride) = nullptr;
};
inline constexpr int64_t kReduceStage = 256;

ReduceOps reduce_ops(ReduceKind kind, DType dtype);

// Of f32 and f64, vectorized; sets combine and blocks.
void set_float_reduce(ReduceKind kind, bool is_f64, ReduceOps& ops);

}  // namespace rlx::cpu
