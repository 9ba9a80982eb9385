// Products of f32 rows with rows of packed dtypes: y[i][j] = sum over k of x[i][k] w[j][k].
#pragma once

#include <cstdint>

#include "rlx/base/dtype.h"

namespace rlx::cpu {

// Up to so many rows that are whole, blocks are decoded in registers and nothing is written but y.
// Else they are decoded into panels of a few columns in the scratch.
inline constexpr int64_t kPackedDotFewRows = 4;
inline constexpr int64_t kPackedDotRows = 128;  // of a panel's turn
// Steps of k in a panel: with the rows of a tile it stays in the first-level cache. Rows of x are
// best arranged by such blocks: at distances of a power of two they would share few cache sets.
inline constexpr int64_t kPackedDotSteps = 768;

// The sum: lane l of a vector takes the elements l, l + lanes, l + 2 lanes, ... in one chain of
// fused multiply-adds, and the lanes are added by halves. So it is a function of k, for any number
// of rows and columns, and whatever way they are computed.
struct PackedDot {
  DType packed = DType::kQ8_0;
  int64_t k = 0;  // whole blocks
  // Rows of x are x_stride apart, blocks of kPackedDotSteps elements of a row x_block: whole rows
  // have no more between their blocks than that.
  const float* x = nullptr;
  int64_t rows = 0, x_stride = 0, x_block = kPackedDotSteps;
  const uint8_t* w = nullptr;  // rows follow each other
  int64_t columns = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  bool stream = false;      // w comes from memory: fetch it ahead
  void* scratch = nullptr;  // packed_dot_scratch() bytes, 64-byte aligned; of this call
};

// For up to so many rows, fewer are whole ones.
int64_t packed_dot_scratch(int64_t rows);
void packed_dot(const PackedDot& p);

}  // namespace rlx::cpu
