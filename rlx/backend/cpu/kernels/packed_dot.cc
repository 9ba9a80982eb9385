#include "rlx/backend/cpu/kernels/packed_dot.h"

#include <algorithm>
#include <array>
#include <utility>

#include "rlx/base/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/packed_dot.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/packed_codec-inl.h"
#include "rlx/backend/cpu/kernels/row_sum-inl.h"

#ifndef RLX_CPU_PACKED_DOT_SIZES_
#define RLX_CPU_PACKED_DOT_SIZES_
namespace rlx::cpu {

inline constexpr int64_t kPanelColumns = 8;
inline constexpr int64_t kGroupColumns = 32;
inline constexpr int64_t kPanelSteps = kPackedDotSteps;
inline constexpr int64_t kMostLanes = 16;

}  // namespace rlx::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

// --- Few rows: R columns at a time, decoded in registers

// How many columns share the registers with the sums of `rows` rows.
constexpr int ColumnsBeside(int rows) {
  if (kBlockLanes == 1) return 1;
  if (kBlockLanes == 16) return rows <= 4 ? 4 : 2;
  return rows <= 2 ? 4 : rows <= 4 ? 2 : 1;
}

template <DType T, int M, int R, bool kStream>
HWY_NOINLINE void FewTile(const PackedDot& p, int64_t column) {
  const BlockTag d;
  const int64_t blocks = p.k / kBlockElements, row_bytes = blocks * kBlockBytes<T>;
  const uint8_t* HWY_RESTRICT w = p.w + column * row_bytes;
  const float* HWY_RESTRICT x = p.x;
  BlockVec sums[M][R];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[m][r] = hn::Zero(d);
  }
  for (int64_t b = 0; b < blocks; ++b) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const uint8_t* block = w + r * row_bytes;
      // The same place of the next R columns.
      if (kStream) __builtin_prefetch(block + R * row_bytes, 0, 2);
      BlockVec v[kBlockVectors];
      LoadBlock<T>(d, block, v);
#pragma GCC unroll 32
      for (int i = 0; i < kBlockVectors; ++i) {
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) {
          const BlockVec a = hn::LoadU(d, x + m * p.x_stride + i * kBlockLanes);
          sums[m][r] = hn::MulAdd(v[i], a, sums[m][r]);
        }
      }
    }
    w += kBlockBytes<T>;
    x += kBlockElements;
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) p.y[m * p.y_stride + column + r] = AddHalves(d, sums[m][r]);
  }
}

template <DType T, int M>
void FewRows(const PackedDot& p) {
  constexpr int R = ColumnsBeside(M);
  int64_t j = 0;
  if (p.stream) {
    // The last group has nothing behind it that would be fetched in vain.
    for (; j + 2 * R <= p.columns; j += R) FewTile<T, M, R, true>(p, j);
  }
  for (; j + R <= p.columns; j += R) FewTile<T, M, R, false>(p, j);
  for (; j < p.columns; ++j) FewTile<T, M, 1, false>(p, j);
}

template <DType T, size_t... I>
constexpr auto FewTable(std::index_sequence<I...>) {
  return std::array<void (*)(const PackedDot&), sizeof...(I)>{&FewRows<T, int(I) + 1>...};
}
template <DType T>
constexpr auto kFewRows = FewTable<T>(std::make_index_sequence<size_t(kPackedDotFewRows)>());

// --- Many rows: panels of decoded columns, tiles of sums that go on from panel to panel

constexpr int kTileRows = kBlockLanes == 16 ? 6 : 4;
constexpr int kTileColumns = kBlockLanes == 16 ? 4 : 2;

struct Panel {
  const float* x;
  int64_t x_stride;
  const float* columns;  // kPanelSteps apart
  int64_t steps;
  float* sums;  // vectors: [row][kPanelColumns]
  bool first;
};

template <int M>
HWY_NOINLINE void Tile(const Panel& p, int64_t column) {
  const BlockTag d;
  constexpr int N = kTileColumns;
  BlockVec s[M][N];
  float* sums = p.sums + column * kBlockLanes;
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      s[m][n] = p.first ? hn::Zero(d) : hn::LoadU(d, sums + (m * kPanelColumns + n) * kBlockLanes);
    }
  }
  const float* HWY_RESTRICT x = p.x;
  const float* HWY_RESTRICT w = p.columns + column * kPanelSteps;
  for (int64_t k = 0; k < p.steps; k += kBlockLanes) {
    BlockVec v[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) v[n] = hn::LoadU(d, w + n * kPanelSteps + k);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const BlockVec a = hn::LoadU(d, x + m * p.x_stride + k);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) s[m][n] = hn::MulAdd(v[n], a, s[m][n]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      hn::StoreU(s[m][n], d, sums + (m * kPanelColumns + n) * kBlockLanes);
    }
  }
}

void TileOf(int64_t rows, const Panel& p, int64_t column) {
  switch (rows) {
    case 1:
      return Tile<1>(p, column);
    case 2:
      return Tile<2>(p, column);
    case 3:
      return Tile<3>(p, column);
    case 4:
      return Tile<4>(p, column);
    case 5:
      if constexpr (kTileRows > 4) return Tile<5>(p, column);
      [[fallthrough]];
    default:
      return Tile<kTileRows>(p, column);
  }
}

// The columns [column, column + count) from step k on, zeros beyond them.
template <DType T>
void DecodePanel(const PackedDot& p, int64_t column, int64_t count, int64_t k, int64_t steps,
                 float* panel) {
  const BlockTag d;
  const int64_t row_bytes = p.k / kBlockElements * kBlockBytes<T>;
  for (int64_t n = 0; n < kPanelColumns; ++n) {
    float* out = panel + n * kPanelSteps;
    if (n >= count) {
      std::fill_n(out, steps, 0.0f);
      continue;
    }
    const uint8_t* block = p.w + (column + n) * row_bytes + k / kBlockElements * kBlockBytes<T>;
    for (int64_t i = 0; i < steps; i += kBlockElements, block += kBlockBytes<T>) {
      // The same place of the next panel.
      if (p.stream) __builtin_prefetch(block + kPanelColumns * row_bytes, 0, 2);
      BlockVec v[kBlockVectors];
      LoadBlock<T>(d, block, v);
      for (int q = 0; q < kBlockVectors; ++q) hn::StoreU(v[q], d, out + i + q * kBlockLanes);
    }
  }
}

// Columns [column, column + count), at most kGroupColumns, times all rows, of which there are at
// most kPackedDotRows. The panels of a group go through a block of x one after the other, while the
// block is in the second-level cache.
template <DType T>
void PanelsOf(const PackedDot& p, int64_t column, int64_t count) {
  const BlockTag d;
  float* panel = static_cast<float*>(p.scratch);
  float* all_sums = panel + kPanelColumns * kPanelSteps;
  const int64_t panel_sums = p.rows * kPanelColumns * kBlockLanes;
  int64_t k = 0;
  do {
    const int64_t steps = std::min(kPanelSteps, p.k - k);
    const float* x = p.x + k / kPanelSteps * p.x_block;
    for (int64_t c = 0; c < count; c += kPanelColumns) {
      const int64_t columns = std::min(kPanelColumns, count - c);
      float* sums = all_sums + c / kPanelColumns * panel_sums;
      DecodePanel<T>(p, column + c, columns, k, steps, panel);
      for (int64_t i = 0; i < p.rows; i += kTileRows) {
        const Panel tile{x + i * p.x_stride,
                         p.x_stride,
                         panel,
                         steps,
                         sums + i * kPanelColumns * kBlockLanes,
                         k == 0};
        for (int64_t j = 0; j < columns; j += kTileColumns) {
          TileOf(std::min<int64_t>(p.rows - i, kTileRows), tile, j);
        }
      }
    }
    k += steps;
  } while (k < p.k);
  for (int64_t i = 0; i < p.rows; ++i) {
    for (int64_t j = 0; j < count; ++j) {
      const float* v = all_sums + j / kPanelColumns * panel_sums +
                       (i * kPanelColumns + j % kPanelColumns) * kBlockLanes;
      p.y[i * p.y_stride + column + j] = AddHalves(d, hn::LoadU(d, v));
    }
  }
}

template <DType T>
void Dot(const PackedDot& p) {
  if (p.rows == 0) return;
  const bool whole_rows = p.x_block == kPanelSteps || p.k <= kPanelSteps;
  if (p.rows <= kPackedDotFewRows && whole_rows) return kFewRows<T>[size_t(p.rows - 1)](p);
  for (int64_t j = 0; j < p.columns; j += kGroupColumns) {
    PanelsOf<T>(p, j, std::min(kGroupColumns, p.columns - j));
  }
}

}  // namespace

void PackedDotOf(const PackedDot& p) {
  p.packed == DType::kQ8_0 ? Dot<DType::kQ8_0>(p) : Dot<DType::kQ4_0>(p);
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(PackedDotOf);

int64_t packed_dot_scratch(int64_t rows) {
  if (rows <= kPackedDotFewRows) return 0;
  const int64_t sums = std::min(rows, kPackedDotRows) * kGroupColumns * kMostLanes;
  return (kPanelColumns * kPanelSteps + sums) * int64_t(sizeof(float));
}

void packed_dot(const PackedDot& p) { HWY_DYNAMIC_DISPATCH(PackedDotOf)(p); }

}  // namespace rlx::cpu
#endif  // HWY_ONCE
