// Few rows times a 16-bit matrix: what a layer does for one token. The matrix is read once, as it
// is, and widened block by block in the cache. The sums are those of the packed matrix kernels: one
// chain of fused multiply-adds over ascending k.
#include <algorithm>
#include <cstring>

#include "rlx/backend/cpu/kernels/convert.h"
#include "rlx/backend/cpu/kernels/product.h"
#include "rlx/backend/cpu/kernels/transpose_tile.h"
#include "rlx/base/checked.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/product_half_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

#ifndef RLX_HALF_ROWS_SIZES
#define RLX_HALF_ROWS_SIZES
namespace rlx::cpu {
inline constexpr int64_t kHalfColumns = 64;  // of a block of the matrix, and of a chunk
inline constexpr int64_t kHalfInner = 64;
}  // namespace rlx::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {  // other files have functions of these names

namespace hn = hwy::HWY_NAMESPACE;

// sums[r][0 ... kHalfColumns) += a[r][k] * panel[k] for R rows, k ascending.
template <size_t R>
HWY_INLINE void add_block(const float* HWY_RESTRICT a, const float* HWY_RESTRICT panel,
                          int64_t depth, float* HWY_RESTRICT sums) {
  const hn::ScalableTag<float> d;
  constexpr size_t kStep = hn::MaxLanes(d);
  constexpr size_t kVectors = size_t(kHalfColumns) / kStep;
  hn::Vec<decltype(d)> s[R][kVectors];
  for (size_t r = 0; r < R; ++r) {
    for (size_t v = 0; v < kVectors; ++v)
      s[r][v] = hn::LoadU(d, sums + r * kHalfColumns + v * kStep);
  }
  for (int64_t k = 0; k < depth; ++k, panel += kHalfColumns) {
    for (size_t v = 0; v < kVectors; ++v) {
      const auto b = hn::LoadU(d, panel + v * kStep);
      for (size_t r = 0; r < R; ++r) {
        s[r][v] = hn::MulAdd(hn::Set(d, a[r * kHalfInner + k]), b, s[r][v]);
      }
    }
  }
  for (size_t r = 0; r < R; ++r) {
    for (size_t v = 0; v < kVectors; ++v)
      hn::StoreU(s[r][v], d, sums + r * kHalfColumns + v * kStep);
  }
}

// Rows of a are kHalfInner apart. Four at a time where the registers hold their sums.
void add_rows(const float* a, int64_t rows, const float* panel, int64_t depth, float* sums) {
  int64_t r = 0;
  if (hn::MaxLanes(hn::ScalableTag<float>()) >= 16) {
    for (; r + 4 <= rows; r += 4) {
      add_block<4>(a + r * kHalfInner, panel, depth, sums + r * kHalfColumns);
    }
  }
  for (; r < rows; ++r) add_block<1>(a + r * kHalfInner, panel, depth, sums + r * kHalfColumns);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(add_rows);

namespace {

struct State {
  Product p;
  bool is_bf16;
  int64_t column_blocks;
  Finish finish;
  void widen(const uint16_t* from, float* to, int64_t n) const {
    (is_bf16 ? bf16_to_f32 : f16_to_f32)(from, to, n);
  }
};

// This thread's buffers.
struct Buffers {
  alignas(64) float panel[kHalfInner * kHalfColumns];
  alignas(64) uint16_t bits[kHalfInner * kHalfColumns];
  alignas(64) float a[kFewHalfRows * kHalfInner];
  alignas(64) float sums[kFewHalfRows * kHalfColumns];
};

// The block of `depth` rows and `columns` columns at b, as f32 rows of kHalfColumns. What stands
// beyond `columns` is finite or not, but never looked at.
void load_panel(const State& s, const uint16_t* b, int64_t depth, int64_t columns, Buffers& w) {
  const int64_t row = s.p.inner.b, column = s.p.column.b;
  if (column == 1) {
    for (int64_t k = 0; k < depth; ++k) {
      s.widen(b + k * row, w.panel + k * kHalfColumns, columns);
    }
    return;
  }
  if (row == 1) {
    transpose_tile(2, b, column, w.bits, kHalfColumns, depth, columns);
  } else {
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t j = 0; j < columns; ++j) w.bits[k * kHalfColumns + j] = b[k * row + j * column];
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    s.widen(w.bits + k * kHalfColumns, w.panel + k * kHalfColumns, columns);
  }
}

void run_half_rows(const void* state, const StepArgs& args, int64_t chunk) {
  const auto& s = *static_cast<const State*>(state);
  const Product& p = s.p;
  auto& w = *static_cast<Buffers*>(args.thread_scratch);
  const int64_t first = chunk % s.column_blocks * kHalfColumns;
  const size_t item = size_t(chunk / s.column_blocks);
  const int64_t columns = std::min(kHalfColumns, p.column.size - first);
  const uint16_t* a = args.in<uint16_t>(0) + p.a_offset[item];
  const uint16_t* b = args.in<uint16_t>(1) + p.b_offset[item] + first * p.column.b;
  std::fill_n(w.sums, p.row.size * kHalfColumns, 0.0f);
  for (int64_t k = 0; k < p.inner.size; k += kHalfInner) {
    const int64_t depth = std::min(kHalfInner, p.inner.size - k);
    load_panel(s, b + k * p.inner.b, depth, columns, w);
    for (int64_t r = 0; r < p.row.size; ++r) {
      const uint16_t* from = a + r * p.row.a + k * p.inner.a;
      for (int64_t i = 0; i < depth; ++i) w.bits[i] = from[i * p.inner.a];
      s.widen(w.bits, w.a + r * kHalfInner, depth);
    }
    HWY_DYNAMIC_DISPATCH(add_rows)(w.a, p.row.size, w.panel, depth, w.sums);
  }
  if (s.finish) {
    const FinishedPiece piece{w.sums,  kHalfColumns, p.c_offset[item] + first,
                              p.row.c, p.row.size,   columns};
    s.finish.run(s.finish.state.get(), args, piece, &w + 1);
    return;
  }
  uint16_t* c = args.out<uint16_t>(0) + p.c_offset[item] + first;
  for (int64_t r = 0; r < p.row.size; ++r) {
    (s.is_bf16 ? f32_to_bf16 : f32_to_f16)(w.sums + r * kHalfColumns, c + r * p.row.c, columns);
  }
}

}  // namespace

PreparedKernel prepare_product_half_rows(const KernelCall& call, Product p, Finish finish) {
  if (p.empty()) return {};
  State s{std::move(p), call.results[0].dtype == DType::kBF16, 0, std::move(finish)};
  s.column_blocks = ceil_div(s.p.column.size, kHalfColumns);
  const int64_t chunks = checked_mul(s.p.items(), s.column_blocks);
  const double per_chunk =
      double(s.p.inner.size) * double(kHalfColumns) * (0.15 + 0.04 * double(s.p.row.size));
  const double finish_ns =
      s.finish.nanoseconds_per_element * double(call.results[0].num_elements());
  const int64_t scratch = checked_add(int64_t(sizeof(Buffers)), s.finish.thread_scratch_bytes);
  PreparedKernel k = PreparedKernel::single(std::move(s), chunks, run_half_rows,
                                            double(chunks) * (50 + per_chunk) + finish_ns);
  k.thread_scratch_bytes = scratch;
  return k;
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
