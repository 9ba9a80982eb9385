// Register tiles: a few rows times a few vectors of columns, one fused chain per element and block
// of a sum. Included once per instruction set.
#if defined(RLX_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RLX_GEMM_TILE_INL_H_
#undef RLX_GEMM_TILE_INL_H_
#else
#define RLX_GEMM_TILE_INL_H_
#endif

#include <array>
#include <cstdint>
#include <utility>

#include "hwy/highway.h"
#include "rlx/backend/cpu/gemm/gemm_layout.h"
#include "rlx/backend/cpu/gemm/gemm_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows x vectors of the main tile: as many accumulators as the registers hold beside B and one
// broadcast.
#if HWY_TARGET == HWY_SCALAR
constexpr int kTileRows = 4, kTileVectors = 2;
#elif HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kTileRows = HWY_ARCH_ARM_A64 ? 6 : 12, kTileVectors = HWY_ARCH_ARM_A64 ? 4 : 2;
#else
constexpr int kTileRows = 6, kTileVectors = 2;
#endif

template <class T>
constexpr int64_t kSumBlock = sum_block(sizeof(T));

// What becomes of C.
enum class Result : uint8_t {
  kStore,     // the sum of all blocks, stored over any numbers that are there
  kAdd,       // C plus the sum of each block
  kContinue,  // one chain from C over all of k
};

template <class T>
struct TileArgs {
  const T* a;
  int64_t a_row_stride, a_col_stride;  // packed A: 1 and the tile's rows, known to the kernel
  const T* b;
  int64_t b_step;   // from one k to the next
  int64_t b_panel;  // from one panel to the next; only the kernels of several panels use it
  int64_t k;
  T* c;
  int64_t c_row_stride;
  Result result;
  int64_t last_lanes;    // valid lanes of the last vector; only the direct kernels use it
  const char* prefetch;  // lines of B needed next, spread over the loop
  const char* prefetch_end;
  int64_t segment;  // steps between prefetches, a divisor of the sum block
  int64_t segment_lines;
};

HWY_INLINE void prefetch_far(const void* p) { __builtin_prefetch(p, 0, 2); }

// How a kernel reads its operands.
enum class TileForm : uint8_t {
  kPackedA,   // both packed
  kStridedA,  // A where it lies, B packed
  kDirect,    // both where they lie; the last vector is partial
};

template <class T, int kRows, int kVectors, TileForm kForm>
struct Tile {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  using M = hn::Mask<D>;
  static constexpr int kLanes = hn::MaxLanes(D());
  static constexpr bool kMasked = kForm == TileForm::kDirect && !kMasksTouch;
  static constexpr int kBases = (kRows + 2) / 3;  // one pointer per three rows of a strided A

  static HWY_INLINE V load_b(D d, const T* p, int v, M mask) {
    if (kMasked && v == kVectors - 1) return hn::MaskedLoad(mask, d, p + v * kLanes);
    return hn::LoadU(d, p + v * kLanes);
  }

  static HWY_INLINE void steps(D d, int64_t count, const T* (&a)[kBases], int64_t row_stride,
                               int64_t col_stride, const T*& b, int64_t b_step, M mask,
                               V (&acc)[kRows][kVectors]) {
    for (int64_t s = 0; s < count; ++s) {
      V bv[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) bv[v] = load_b(d, b, v, mask);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const V av =
            hn::Set(d, kForm == TileForm::kPackedA ? a[0][i] : a[i / 3][(i % 3) * row_stride]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) acc[i][v] = hn::MulAdd(av, bv[v], acc[i][v]);
      }
      if (kForm == TileForm::kPackedA) {
        a[0] += kRows;
      } else {
#pragma GCC unroll 4
        for (int q = 0; q < kBases; ++q) a[q] += col_stride;
      }
      b += b_step;
    }
  }

  // Adds the accumulators to C, or stores them.
  static HWY_INLINE void fold(D d, V (&acc)[kRows][kVectors], bool add, T* c, int64_t c_row_stride,
                              M mask) {
    if (add) {
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          acc[i][v] = hn::Add(load_b(d, c + i * c_row_stride, v, mask), acc[i][v]);
        }
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      T* row = c + i * c_row_stride;
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        if (kMasked && v == kVectors - 1) {
          hn::BlendedStore(acc[i][v], mask, d, row + v * kLanes);
        } else {
          hn::StoreU(acc[i][v], d, row + v * kLanes);
        }
      }
    }
  }

  static HWY_NOINLINE void run(const TileArgs<T>& t) {
    const D d;
    const M mask = hn::FirstN(d, static_cast<size_t>(kMasked ? t.last_lanes : kLanes));
    const T* a[kBases];
#pragma GCC unroll 4
    for (int q = 0; q < kBases; ++q) a[q] = t.a + 3 * q * t.a_row_stride;
    const T* b = t.b;
    const char* next = t.prefetch;
    const T* next_c = t.c;
    int fetched_rows = 0;
    int64_t rest = t.k;
    const bool chain = t.result == Result::kContinue;
    bool add = t.result == Result::kAdd;
    do {
      V acc[kRows][kVectors];
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) acc[i][v] = hn::Zero(d);
      }
      if (chain) {
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) {
            acc[i][v] = load_b(d, t.c + i * t.c_row_stride, v, mask);
          }
        }
      }
      int64_t count = chain ? rest : HWY_MIN(rest, kSumBlock<T>);
      rest -= count;
      if (kForm != TileForm::kDirect) {
        // One row of C and a few lines of B per segment: a burst would fill the line buffers.
        for (; count >= t.segment; count -= t.segment) {
          if (fetched_rows < kRows) {
            __builtin_prefetch(next_c, 1, 3);
            __builtin_prefetch(next_c + kVectors * kLanes - 1, 1, 3);
            next_c += t.c_row_stride;
            ++fetched_rows;
          }
          for (int64_t l = 0; l < t.segment_lines && next < t.prefetch_end; ++l, next += 64) {
            prefetch_far(next);
          }
          steps(d, t.segment, a, t.a_row_stride, t.a_col_stride, b, t.b_step, mask, acc);
        }
      }
      steps(d, count, a, t.a_row_stride, t.a_col_stride, b, t.b_step, mask, acc);
      fold(d, acc, add, t.c, t.c_row_stride, mask);
      add = true;
    } while (rest > 0);
  }
};

// One or two rows times several panels: a block of an element still is one chain, so several panels
// hide the latency of the fused multiply-add, and memory sees several streams.
template <class T, int kRows, int kPanels, bool kStream>
struct WideTile {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static constexpr int kLanes = hn::MaxLanes(D());
  static constexpr int kPerPanel = kPanelBytes / sizeof(T) / kLanes;
  static constexpr int kVectors = kPanels * kPerPanel;
  static constexpr int64_t kAhead = 8192 / sizeof(T);  // elements

  static HWY_INLINE void fold(D d, V (&acc)[kRows][kVectors], bool add, T* c,
                              int64_t c_row_stride) {
#pragma GCC unroll 2
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        T* p = c + i * c_row_stride + v * kLanes;
        hn::StoreU(add ? hn::Add(hn::LoadU(d, p), acc[i][v]) : acc[i][v], d, p);
      }
    }
  }

  static HWY_NOINLINE void run(const TileArgs<T>& t) {
    const D d;
    const T* a = t.a;
    const T* b[kPanels];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) b[p] = t.b + p * t.b_panel;
    int64_t rest = t.k;
    const bool chain = t.result == Result::kContinue;
    bool add = t.result == Result::kAdd;
    do {
      V acc[kRows][kVectors];
#pragma GCC unroll 2
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          acc[i][v] = chain ? hn::LoadU(d, t.c + i * t.c_row_stride + v * kLanes) : hn::Zero(d);
        }
      }
      const int64_t count = chain ? rest : HWY_MIN(rest, kSumBlock<T>);
      rest -= count;
      for (int64_t s = 0; s < count; ++s) {
        V av[kRows];
#pragma GCC unroll 2
        for (int i = 0; i < kRows; ++i) av[i] = hn::Set(d, a[i * t.a_row_stride]);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          const T* p = b[v / kPerPanel] + (v % kPerPanel) * kLanes;
          const V bv = hn::LoadU(d, p);
          if (kStream && v * kLanes * sizeof(T) % 64 == 0) prefetch_far(p + kAhead);
#pragma GCC unroll 2
          for (int i = 0; i < kRows; ++i) acc[i][v] = hn::MulAdd(av[i], bv, acc[i][v]);
        }
        a += t.a_col_stride;
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) b[p] += t.b_step;
      }
      fold(d, acc, add, t.c, t.c_row_stride);
      add = true;
    } while (rest > 0);
  }
};

template <class T>
using TileFunction = void (*)(const TileArgs<T>&);

// Kernels for 1..kTileRows rows; entry r - 1 has r rows.
template <class T, int kVectors, TileForm kForm, size_t... kIndex>
constexpr std::array<TileFunction<T>, sizeof...(kIndex)> tile_table(
    std::index_sequence<kIndex...>) {
  return {{&Tile<T, static_cast<int>(kIndex) + 1, kVectors, kForm>::run...}};
}

template <class T, int kVectors, TileForm kForm>
constexpr auto kTiles = tile_table<T, kVectors, kForm>(std::make_index_sequence<kTileRows>());

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();
#endif  // RLX_GEMM_TILE_INL_H_
