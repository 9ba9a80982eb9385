#pragma once

#include <cstdint>

namespace rlx::cpu {

// A tile reads whole cache lines and writes a few lines in a row.
inline constexpr int64_t kTileRowBytes = 128;
inline constexpr int64_t kTileColumnBytes = 512;

// to[r * to_stride + c] = from[r + c * from_stride] for r < rows, c < columns; elements of 1, 2, 4
// or 8 bytes, strides in elements, rows * bytes at most kTileRowBytes, columns * bytes at most
// kTileColumnBytes.
void transpose_tile(int64_t bytes, const void* from, int64_t from_stride, void* to,
                    int64_t to_stride, int64_t rows, int64_t columns);

}  // namespace rlx::cpu
