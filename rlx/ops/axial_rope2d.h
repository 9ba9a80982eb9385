#pragma once

#include <vector>

#include "rlx/ir/builder.h"

namespace rlx {

// Which grid position token t has: t / repeat_factor, or t modulo the size of the grid.
enum class AxialRepeat : uint8_t { kInterleave, kTile };

struct AxialRope2dAttrs {
  int64_t end_x = 0, end_y = 0;  // the grid
  int64_t head_dim = 0;          // D, a multiple of 4
  int64_t num_heads = 0;         // H
  double theta = 10000;
  int64_t repeat_factor = 1;  // tokens of each position; 0 is read as 1
  AxialRepeat repeat_mode = AxialRepeat::kInterleave;
  int64_t num_k_exclude = 0;  // tokens at the end that are copied
};

// The angles of places 0, 1, ... along either side of the grid: [max(end_x, end_y), head_dim / 4].
std::vector<double> axial_rope2d_angles(const AxialRope2dAttrs& a);

Value axial_rope2d(Builder& b, Value x, AxialRope2dAttrs attrs);

}  // namespace rlx

RLX_ENUM(rlx::AxialRepeat, "Interleave", "Tile");
