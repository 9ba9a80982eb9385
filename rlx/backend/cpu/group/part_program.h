// The elementwise part of a group over rectangles of its iteration space: by the stage machine
// where every operand lies in the rectangle as that wants it, else tile by tile.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "rlx/backend/cpu/group/tile_program.h"
#include "rlx/backend/cpu/region/program.h"

namespace rlx::cpu {

// `rows` stretches of `columns` elements: row r begins at flat + r * row_step of the space. What is
// handed over lies `handed_step` elements from row to row.
struct PartRectangle {
  int64_t flat = 0, row_step = 0, rows = 1, columns = 0, handed_step = 0;
};

class PartProgram {
 public:
  // As TileProgram. `over_input`: the output that may lie where the handed-over input lies.
  PartProgram(const Graph& body, const Dims& dims,
              std::span<const std::optional<TensorDesc>> inputs, std::span<const uint8_t> handed,
              size_t over_input = 0);

  int64_t scratch_bytes() const { return scratch_bytes_; }
  double nanoseconds_per_element() const;
  void run(const TileArgs& args, const PartRectangle& r, void* scratch) const;

 private:
  struct Output {
    bool handed = false, passes_input = false;
    int64_t size = 4;  // bytes in memory
  };

  bool place(const TileArgs& args, const PartRectangle& r, std::span<RegionRows> in) const;
  void run_region(const TileArgs& args, const PartRectangle& r, std::span<RegionRows> in,
                  void* scratch) const;

  TileProgram tiles_;
  std::vector<RegionProgram> region_;                 // none or one
  std::vector<std::optional<TileOperand>> operands_;  // by input; none: handed over
  std::vector<int64_t> handed_size_;                  // by input
  std::vector<Output> outputs_;
  std::vector<size_t> order_;  // the region's result i is output order_[i]
  int64_t scratch_bytes_ = 0;
};

}  // namespace rlx::cpu
