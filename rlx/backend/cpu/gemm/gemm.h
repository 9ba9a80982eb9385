#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace rlx::cpu {

enum class GemmElement : uint8_t { kF32, kF64 };

// C[b] = A[b] * B[b] for every batch item b, each (m x k) * (k x n).
// Offsets and strides count elements. Strides of A and B are any non-negative values, so
// transposed, sliced and broadcast (stride 0) views need no copy; columns of C are contiguous.
struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  // One entry per batch item; offsets of A and B may repeat (broadcast), those of C must not
  // overlap. With a prepacked B, b_offset counts elements of the packed buffer: item i of a stack
  // of packed matrices stands at i * packed_b_bytes(element, n, k) / sizeof(element).
  std::vector<int64_t> a_offset{0}, b_offset{0}, c_offset{0};
  int64_t a_row_stride = 0, a_col_stride = 1;
  int64_t b_row_stride = 0, b_col_stride = 1;  // ignored for a prepacked B
  int64_t c_row_stride = 0;
};

// Called on finished pieces of C, in place, while they are still in the cache. Every element of C
// is handed over exactly once. Must not throw. One of the two functions:
struct GemmEpilogue {
  // The columns [j, j + n) of row i of batch item `batch`.
  void (*apply)(const void* state, void* row, int64_t batch, int64_t i, int64_t j,
                int64_t n) = nullptr;
  const void* state = nullptr;
  // The same for the rows [i, i + rows), which are row_stride elements apart.
  void (*apply_rows)(const void* state, void* c, int64_t row_stride, int64_t batch, int64_t i,
                     int64_t rows, int64_t j, int64_t n) = nullptr;
  // Whether apply_rows costs so little that it is best called on single register tiles, which are
  // in the first-level cache, instead of pieces that make up for a call.
  bool by_tiles = false;
};

struct GemmArgs {
  const void* a = nullptr;
  const void* b =
      nullptr;  // the operand, or the result of pack_b if the plan says so; then 64-byte aligned
  void* c = nullptr;
  void* scratch = nullptr;  // scratch_bytes(), 64-byte aligned, shared by all threads of a run
  void* thread_scratch = nullptr;  // thread_scratch_bytes(), 64-byte aligned, one per thread
  GemmEpilogue epilogue;
};

struct GemmKernels;  // one instruction set's kernels
struct GemmGrid;

// How to compute one shape: phases of independent chunks, with a barrier of the caller's between
// phases. The number of chunks follows from the shape alone.
//
// Bits: k is cut into blocks of sum_block() steps (gemm_layout.h: 512 for f32, 256 for f64); the
// last one may be shorter. The sum of a block is one chain of fused multiply-adds over ascending k
// that starts from 0. An element of C is the first block's sum, to which those of the others are
// added one by one in ascending order; k = 0 gives 0. So it depends on k alone: not on m, n, batch,
// strides, packing, path, chunk or thread. Blocks bound the error: a single chain over a million
// equal terms of f32 is off by a percent. (The scalar target rounds the product too: it has no
// fused instruction.)
// Accumulating, a single chain goes on from C over all of k: a caller who cuts a sum into several
// products gets the same bits wherever the cuts are, and bounds the length of the chain.
//
// Immutable; run() allocates nothing and may be called by many threads at once.
class GemmPlan {
 public:
  static constexpr int64_t kScratchTarget = int64_t{64} << 20;

  // Uses the best instruction set that Highway reports at this moment. Packed A and packed B take
  // up to `scratch_target` bytes each, but at least a block of rows and one B; more work is done in
  // turns, with phases of their own.
  // Throws rlx::Error for negative sizes or strides, unequal offset counts, and sizes past 2^63.
  GemmPlan(GemmElement element, GemmShape shape, bool b_prepacked, bool accumulate = false,
           int64_t scratch_target = kScratchTarget);
  ~GemmPlan();
  GemmPlan(GemmPlan&&) noexcept;
  GemmPlan& operator=(GemmPlan&&) noexcept;

  size_t scratch_bytes() const;
  size_t thread_scratch_bytes() const;
  int phases() const;  // 0 if C is empty
  int64_t chunks(int phase) const;
  void run(int phase, int64_t chunk, const GemmArgs& args) const noexcept;

  // One line for logs and tests: the path chosen, operand modes and grid.
  const char* path() const;
  const char* target() const;  // Highway's name of the instruction set

  // The packed form of B is the same for all instruction sets. Throws rlx::Error on overflow.
  static size_t packed_b_bytes(GemmElement element, int64_t n, int64_t k);
  // `out` holds packed_b_bytes and is 64-byte aligned.
  static void pack_b(GemmElement element, const void* b, int64_t row_stride, int64_t col_stride,
                     int64_t n, int64_t k, void* out);

 private:
  std::unique_ptr<const GemmGrid> grid_;
};

}  // namespace rlx::cpu
