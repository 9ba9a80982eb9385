#pragma once

#include <cstddef>
#include <cstdint>

#include "rlx/backend/cpu/gemm/gemm.h"
#include "rlx/backend/cpu/gemm/gemm_layout.h"

// The seam between the plan, which knows shapes, and the kernels of one instruction set.
namespace rlx::cpu {

enum class OperandMode : uint8_t {
  kDirect,  // read where it lies
  kPacked,  // packed before: by the caller, or in an earlier phase
  kLocal,   // the chunk packs what it needs into the thread's scratch
};

// The product of some row tiles of one batch item with some panels of B.
struct GemmBlock {
  const void* a;  // kDirect, kLocal: the item's A; kPacked: the block's packed tiles
  OperandMode a_mode;
  int64_t a_row_stride, a_col_stride;
  const void* b;  // kDirect, kLocal: the item's B; kPacked: its panel 0
  OperandMode b_mode;
  int64_t b_row_stride, b_col_stride;
  void* c;  // the item's C
  int64_t c_row_stride;
  RowTiles tiles;
  int64_t tile_begin, tile_end;
  int64_t panel_begin, panel_end;
  int64_t n, k;
  bool accumulate;

  bool panel_outer;       // one panel over all of k before the next: for few rows
  bool stream;            // packed B comes from memory: prefetch it
  int64_t block_k;        // k is handled in blocks of this: whole sum blocks, or all of k
  int64_t local_panels;   // panels packed at a time if B is kLocal
  int64_t finish_panels;  // the epilogue runs each time this many panels are finished
  void* local_a;
  void* local_b;
  bool swapped;  // C is a column: tell the epilogue rows of one element
  int64_t batch;
  GemmEpilogue epilogue;
};

struct GemmKernels {
  int64_t target;     // Highway's bit
  int64_t tile_rows;  // rows of the largest tile
  bool direct_any_n;  // kDirect B works for any n, else only for multiples of `lanes`
  int64_t lanes;
  // dst[s * width + lane] = src[lane * lane_stride + s * step_stride]; zero for lanes..width.
  void (*pack)(const void* src, int64_t lane_stride, int64_t step_stride, int64_t lanes,
               int64_t width, int64_t steps, void* dst);
  void (*multiply)(const GemmBlock& block);         // B kPacked or kLocal
  void (*multiply_direct)(const GemmBlock& block);  // A and B kDirect
};

const GemmKernels& gemm_kernels_f32();
const GemmKernels& gemm_kernels_f64();

}  // namespace rlx::cpu
