// What the pooling kernels know of a call. A plane is one channel of one image, all spatial axes.
#pragma once

#include <vector>

#include "rlx/backend/cpu/kernels/window_geometry.h"
#include "rlx/compile/kernel.h"
#include "rlx/ops/pool.h"

namespace rlx::cpu {

struct PoolState {
  WindowGeometry g;
  int64_t planes = 0, planes_per_chunk = 1;
  DType dtype = DType::kF32;
  PoolKind kind = PoolKind::kMax;
  std::vector<int64_t> taps;  // where the cells of a window stand, from its first padded cell on
  // Mean without count_include_pad: cells of the tensor in a window, by axis; else empty.
  std::vector<double> counts[3];

  // x and y are [N, C, spatial...].
  PoolState(const TensorDesc& x, const TensorDesc& y, const Window& w);
  // Padded lines of the two outer axes, and all padded cells of a plane.
  int64_t outer_cells() const { return g.cells(0, g.out[0]); }
  int64_t middle_cells() const { return g.cells(1, g.out[1]); }
  int64_t cells() const { return outer_cells() * middle_cells() * g.line(); }
  // First padded cell of the windows of output line (z, y).
  int64_t window_start(int64_t z, int64_t y) const {
    return (z * g.stride[0] * middle_cells() + y * g.stride[1]) * g.line();
  }
  // Bytes of `buffers` planes of padded lines in the thread's scratch.
  int64_t scratch_bytes(int64_t buffers) const;
  int64_t buffer_elements() const { return round_up(cells() + kLineSlack, 16); }
  int64_t chunks() const { return ceil_div(planes, planes_per_chunk); }
  double nanoseconds(double ns_per_cell) const;
};

}  // namespace rlx::cpu
