#pragma once

#include <cstdint>

#include "rlx/base/checked.h"

namespace rlx::cpu {

// Packed B is [panel][k / KP][column][KP]: one 128-byte line pair per step holds all columns of a
// panel. KP (steps that share a 32-bit lane) is 1 for f32 and f64. Columns past n are zero. All of
// k is contiguous in a panel, so a matrix-vector product reads one sequence from begin to end.
constexpr int64_t kPanelBytes = 128;

constexpr int64_t panel_columns(int64_t element_bytes) { return kPanelBytes / element_bytes; }

constexpr int64_t divide_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// Steps of k that one chain sums (see GemmPlan): 512 for f32, 256 for f64. Also the k block of the
// loop nests: over it, a block of rows of A fits the second-level cache.
constexpr int64_t kSumBlockBytes = 2048;

constexpr int64_t sum_block(int64_t element_bytes) { return kSumBlockBytes / element_bytes; }

// Scratch is laid out in cache lines.
inline int64_t align64(int64_t bytes) { return round_up(bytes, 64); }

// Rows are cut into tiles as equal as possible: 16 rows at a limit of 12 are 8 + 8, not 12 + 4.
// Packed A is [tile][k][rows of the tile], so the tile that starts at row r stands at element r *
// k.
struct RowTiles {
  int64_t base = 0, extra = 0;  // the first `extra` tiles have one row more

  constexpr RowTiles() = default;
  constexpr RowTiles(int64_t rows, int64_t tiles) : base(rows / tiles), extra(rows % tiles) {}
  constexpr int64_t start(int64_t t) const { return t * base + (t < extra ? t : extra); }
  constexpr int64_t height(int64_t t) const { return base + (t < extra ? 1 : 0); }
};

}  // namespace rlx::cpu
