// The patches of an image under a kernel, built block by block in the layouts that the matrix
// product reads. A patch matrix has one row per (channel, tap) and one column per output position.
#pragma once

#include <vector>

#include "rlx/backend/cpu/kernels/window_geometry.h"
#include "rlx/base/dtype.h"

namespace rlx::cpu {

// A block: `lines` output lines from `y` on, of the output plane `z`.
struct PatchBlock {
  int64_t z = 0, y = 0, lines = 0;
};

// How the patches of `channels` channels are cut into blocks of lines: `block_lines`, or, if 0, as
// many as stay in the cache. Everything follows from the sizes of one image, so the blocks are the
// same for every batch size and number of threads.
class PatchGrid {
 public:
  PatchGrid() = default;
  PatchGrid(const WindowGeometry& geometry, int64_t channels, DType dtype, int64_t block_lines = 0);

  const WindowGeometry& geometry() const { return g_; }
  DType dtype() const { return dtype_; }  // of the tensor in memory
  bool is_double() const { return dtype_ == DType::kF64; }
  int64_t element_bytes() const { return is_double() ? 8 : 4; }  // of patches
  int64_t channels() const { return channels_; }
  int64_t depth() const { return channels_ * g_.taps(); }

  int64_t block_lines() const { return block_lines_; }
  int64_t last_lines() const { return g_.out[1] - (blocks_y_ - 1) * block_lines_; }
  int64_t blocks() const { return g_.out[0] * blocks_y_; }
  PatchBlock block(int64_t i) const;
  int64_t columns(int64_t lines) const { return lines * g_.out[2]; }
  int64_t first_column(const PatchBlock& b) const { return (b.z * g_.out[1] + b.y) * g_.out[2]; }

  // Bytes of the padded lines behind a block, and of a block of patches in either layout; 64-byte
  // multiples.
  int64_t lines_bytes() const;
  int64_t panels_bytes() const;
  int64_t rows_bytes() const;

  // Loads what the block reads of x, which is [channels, depth, height, width].
  void load_lines(const void* x, const PatchBlock& b, void* lines) const;
  // As the packed operand B of the matrix product (GemmPlan::pack_b).
  void pack_panels(const void* lines, const PatchBlock& b, void* packed) const;
  // Row by row: columns(b.lines) elements each.
  void pack_rows(const void* lines, const PatchBlock& b, void* rows) const;

  // The matrix product of one row, without building patches: adds to sum[r] the products of the
  // block's row r with `dy` (columns(b.lines) elements), in one chain as an accumulating GemmPlan
  // does. `dy` and `sum` have the type of patches.
  void add_row_product(const void* lines, const PatchBlock& b, const void* dy, void* sum) const;

  int64_t line_rows() const { return line_rows_; }
  const std::vector<int64_t>& tap_offsets() const { return tap_offsets_; }

 private:
  WindowGeometry g_;
  DType dtype_ = DType::kF32;
  int64_t channels_ = 0, block_lines_ = 1, blocks_y_ = 1;
  int64_t line_rows_ = 0;             // padded lines of one input plane behind a block
  std::vector<int64_t> tap_offsets_;  // by row of the patch matrix: where its first element stands
};

// Outputs [begin, end) of a line whose tap lies in the tensor; `first` is the cell of `begin`.
struct TapRange {
  int64_t begin = 0, end = 0, first = 0;
  // With stride 1: past the last cell, and the output that lies on a cell.
  int64_t last() const { return first + (end - begin); }
  int64_t output(int64_t cell) const { return cell - first + begin; }
};

// The transpose of taking patches: where output lines add to the lines of x. A cell of x takes its
// terms by output line, then by tap along the line: an order that follows from the geometry alone,
// however the lines and channels are split among calls (with ascending lines).
struct AdjointLines {
  WindowGeometry geometry;
  std::vector<TapRange> ranges;  // by tap along the line
  AdjointLines() = default;
  explicit AdjointLines(const WindowGeometry& g);
};

// Adds a patch matrix to the image it came from. `patches` has a row per (channel, tap) and columns
// for `lines` output lines (counted through all planes) from `line` on; x is [channels, depth,
// height, width]. Both are f32, or f64 if `is_double`.
void add_patches(const AdjointLines& a, bool is_double, const void* patches, int64_t channels,
                 int64_t line, int64_t lines, void* x);

// The same for one channel whose patch matrix is w dy: row t is dy (all output lines) times w[t].
void add_scaled(const AdjointLines& a, bool is_double, const void* dy, const void* w, void* x);

}  // namespace rlx::cpu
