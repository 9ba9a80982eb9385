// Copies between two strided views of one shape: the cost of Copy, Concat and of every Transpose
// that is not folded into its reader.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rlx/base/shape.h"

namespace rlx::cpu {

// Elements move as bytes of 1, 2, 4, 8 or 16. Strides count elements and are not negative; those of
// the destination must not make elements overlap. Views must not overlap in memory.
// Work is cut into chunks by the shape alone; chunks are independent.
class StridedCopy {
 public:
  StridedCopy(int64_t element_bytes, std::span<const int64_t> dims, std::span<const int64_t> from,
              std::span<const int64_t> to);

  int64_t chunks() const { return chunks_; }  // 0 if there are no elements
  void run(int64_t chunk, const void* from, void* to) const;
  double nanoseconds() const;  // estimate of all chunks on one thread

 private:
  struct Axis {
    int64_t size, from, to;
  };
  void collapse();
  void choose_axes();
  void choose_chunks();
  void run_task(int64_t task, const char* from, char* to) const;

  int64_t bytes_ = 1;
  std::vector<Axis> outer_;  // walked by tasks, outermost first
  // The two axes of a task: along `columns_` the destination is written. If transposed, the source
  // is contiguous along `rows_` and the destination along `columns_`.
  Axis rows_{1, 1, 1}, columns_{1, 1, 1};
  bool transposed_ = false;
  int64_t row_tile_ = 1, column_tile_ = 1;    // of a task
  int64_t row_tiles_ = 1, column_tiles_ = 1;  // tasks per step of the outer axes
  int64_t tasks_ = 0, tasks_per_chunk_ = 1, chunks_ = 0;
};

}  // namespace rlx::cpu
