// Windows at run-time places: what DynamicSlice, DynamicUpdateSlice and KvAppend share.
#pragma once

#include <span>
#include <vector>

#include "rlx/backend/cpu/kernels/strided_copy.h"
#include "rlx/compile/kernel.h"

namespace rlx::cpu {

// One window per position of the batch axes of a tensor, with starts of its own.
struct WindowPlaces {
  struct Axis {
    int64_t axis, size, window, stride;  // stride in elements
  };
  std::vector<Axis> axes;
  int64_t batches = 1, batch_stride = 0;  // elements between the batches' parts
  // Says that a window does not fit; throws.
  void (*refuse)(const Axis& axis, int64_t start) = nullptr;

  WindowPlaces() = default;
  // A dense tensor of size `dims`.
  WindowPlaces(const Dims& dims, const Dims& window, std::span<const int64_t> axes,
               int64_t batch_dims);

  // The element where the window of a batch begins. Throws if it does not fit.
  int64_t first(const int64_t* starts, int64_t batch) const;
  void check_all(const int64_t* starts) const;
};

// result 0 = operand 0 with the windows replaced by operand 1, at the starts in operand 2. Where
// result and operand 0 are one memory, only the windows are written. Nothing is written if a window
// does not fit.
PreparedKernel prepare_update_slice(const KernelCall& call, WindowPlaces places,
                                    int64_t batch_dims);

}  // namespace rlx::cpu
