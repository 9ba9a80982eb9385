// Conv and Pool as their kernels see them: always three spatial axes (leading ones of size 1), and
// padded lines in which the cells of a window's tap lie side by side for any stride.
#pragma once

#include <algorithm>
#include <vector>

#include "rlx/base/checked.h"
#include "rlx/ops/window.h"

namespace rlx::cpu {

// Cells [begin, end) of a phase of a padded line lie in the tensor; the first of them is cell
// `first` of the line.
struct PhaseRange {
  int64_t begin = 0, end = 0, first = 0;
};

struct WindowGeometry {
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1};
  int64_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, before[3] = {0, 0, 0};
  int64_t dilation[3] = {1, 1, 1};

  WindowGeometry() = default;
  // x and y are [N, C, spatial...].
  WindowGeometry(const Dims& x, const Dims& y, const Window& w) {
    const int64_t r = w.rank();
    for (int64_t i = 0; i < r; ++i) {
      const auto to = size_t(3 - r + i), from = size_t(i);
      in[to] = x[size_t(2 + i)];
      out[to] = y[size_t(2 + i)];
      kernel[to] = w.kernel[from];
      // A single window goes nowhere, and phases of a huge stride would be that many.
      stride[to] = out[to] > 1 ? w.stride[from] : 1;
      before[to] = w.before(i);
      dilation[to] = w.dilation[from];
    }
    make_phases();
  }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t in_area() const { return in[0] * in[1] * in[2]; }
  int64_t out_area() const { return out[0] * out[1] * out[2]; }
  // One tap, no padding, every cell: the patches are the tensor itself.
  bool is_pointwise() const {
    for (int a = 0; a < 3; ++a) {
      if (kernel[a] != 1 || stride[a] != 1 || in[a] != out[a] || before[a] != 0) return false;
    }
    return true;
  }
  // Padded cells along `axis` that `count` windows read.
  int64_t cells(int axis, int64_t count) const {
    return (count - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1;
  }

  // A padded line of the last axis is stored by phases: cell x at (x mod stride) * phase + x /
  // stride, so that tap k of the windows 0, 1, 2, ... is read from tap_offset(k) on, contiguously.
  int64_t phase() const { return phase_; }
  int64_t line() const { return phase_ * stride[2]; }
  const std::vector<PhaseRange>& phases() const { return phases_; }
  int64_t tap_offset(int64_t k) const {
    const int64_t cell = k * dilation[2];
    return cell % stride[2] * phase() + cell / stride[2];
  }

 private:
  void make_phases() {
    const int64_t step = stride[2];
    phase_ = ceil_div(cells(2, out[2]), step);
    for (int64_t p = 0; p < step; ++p) {
      const int64_t begin = std::clamp<int64_t>(ceil_div(before[2] - p, step), 0, phase_);
      const int64_t end = std::clamp<int64_t>(ceil_div(in[2] + before[2] - p, step), begin, phase_);
      phases_.push_back({begin, end, begin * step + p - before[2]});
    }
  }

  int64_t phase_ = 1;
  std::vector<PhaseRange> phases_;
};

// Vector loads and stores at the end of a buffer of lines may pass it by so many elements.
inline constexpr int64_t kLineSlack = 32;

}  // namespace rlx::cpu
