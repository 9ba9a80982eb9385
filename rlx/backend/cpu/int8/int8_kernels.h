// Integer dot products of bytes. Highway has none that fits, so each instruction set has a file of
// its own, compiled with its flags; the best one is chosen at run time. All give the same bits.
#pragma once

#include <cstdint>
#include <span>

#include "rlx/base/dtype.h"

namespace rlx::cpu {

// y[i][j] = sum over blocks b of scale[i][b] * d_b(w_j) * (integer sum of q[i] times the codes of
// w_j in the block). In a block, lane l of eight sums the elements 4l ... 4l + 3 as integers, which
// is exact, and adds the sum times both scales to its f32 in one fused step; blocks ascend, and the
// lanes are added by halves. So the order depends on the number of blocks only.
struct Int8Dot {
  DType packed = DType::kQ8_0;  // of w
  int64_t blocks = 0;           // of a row
  int64_t rows = 0;
  const int8_t* q = nullptr;       // [rows][blocks][32], from -127 to 127
  const float* scale = nullptr;    // [rows][blocks]
  const int32_t* start = nullptr;  // [rows][blocks][8]: where the integer sums begin
  const uint8_t* w = nullptr;      // rows that follow each other
  int64_t columns = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
};

// sums[i][j] = sum over k of a[i][k] b[k][j] modulo 2^32, for one panel of b.
inline constexpr int64_t kInt8PanelColumns = 32;
inline constexpr int64_t kInt8TileRows = 8;
struct Int8Product {
  int64_t rows = 0;            // at most kInt8TileRows
  const uint8_t* a = nullptr;  // [rows][4 * steps], `a_stride` bytes apart
  int64_t a_stride = 0;
  const int8_t* b = nullptr;  // [steps][kInt8PanelColumns][4], 64-byte aligned
  int64_t steps = 0;
  int32_t* sums = nullptr;  // [rows][kInt8PanelColumns], 64-byte aligned
};

struct Int8Kernels {
  const char* name;
  void (*dot)(const Int8Dot&);
  void (*product)(const Int8Product&);
};

// Null where the file is not compiled for this processor.
const Int8Kernels* int8_kernels_vnni();
const Int8Kernels* int8_kernels_avx2();
const Int8Kernels* int8_kernels_scalar();

// Those that this machine runs, best first; Highway's choice of targets limits them.
std::span<const Int8Kernels* const> int8_kernels();

}  // namespace rlx::cpu
