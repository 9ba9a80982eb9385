// Loop nests over register tiles. Included once per instruction set.
#if defined(RLX_GEMM_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RLX_GEMM_LOOPS_INL_H_
#undef RLX_GEMM_LOOPS_INL_H_
#else
#define RLX_GEMM_LOOPS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "rlx/backend/cpu/gemm/gemm_kernels.h"
#include "rlx/backend/cpu/gemm/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
struct Loops {
  static constexpr int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  static constexpr int64_t kPanel = panel_columns(sizeof(T));
  static constexpr int64_t kTileColumns = kTileVectors * kLanes;
  static_assert(kPanel % kTileColumns == 0);
  static constexpr bool kWide = HWY_TARGET != HWY_SCALAR;
  // Panels that keep eight accumulators per thread busy at one and at two rows.
  static constexpr int kWide1 = kLanes * sizeof(T) >= 64 ? 4 : kLanes * sizeof(T) >= 32 ? 2 : 1;
  static constexpr int kWide2 = kLanes * sizeof(T) >= 64 ? 2 : 1;

  // The operands of one panel over one k block.
  struct Step {
    const T* a =
        nullptr;  // packed: the block's first tile; else row 0 of the item at the block's k
    int64_t a_row_stride = 0, a_col_stride = 0;
    bool a_packed = false;
    int64_t a_packed_k = 0;     // packed: steps that a tile holds
    int64_t a_packed_skip = 0;  // and those before the block's first
    const T* b = nullptr;
    int64_t k = 0;
    bool last = false;  // k block of the sum
    Result result = Result::kStore;
    const char* next = nullptr;  // the part of B needed after this one, if it should be prefetched
    int64_t next_lines = 0;
  };

  static void finish(const GemmBlock& g, int64_t j, int64_t columns) {
    const GemmEpilogue& e = g.epilogue;
    if (!e.apply && !e.apply_rows) return;
    T* c = static_cast<T*>(g.c);
    if (g.swapped) {
      if (e.apply_rows) return e.apply_rows(e.state, c + j, 1, g.batch, j, columns, 0, 1);
      for (int64_t i = j; i < j + columns; ++i) e.apply(e.state, c + i, g.batch, i, 0, 1);
      return;
    }
    const int64_t begin = g.tiles.start(g.tile_begin), end = g.tiles.start(g.tile_end);
    c += j;
    if (e.apply_rows) {
      return e.apply_rows(e.state, c + begin * g.c_row_stride, g.c_row_stride, g.batch, begin,
                          end - begin, j, columns);
    }
    for (int64_t i = begin; i < end; ++i) {
      e.apply(e.state, c + i * g.c_row_stride, g.batch, i, j, columns);
    }
  }

  // A tile is complete.
  static HWY_INLINE void finish_tile(const GemmBlock& g, int64_t row, int64_t rows, int64_t j,
                                     int64_t columns) {
    const GemmEpilogue& e = g.epilogue;
    e.apply_rows(e.state, static_cast<T*>(g.c) + row * g.c_row_stride + j, g.c_row_stride, g.batch,
                 row, rows, j, columns);
  }

  static bool by_tiles(const GemmBlock& g) { return g.epilogue.by_tiles && !g.swapped; }

  // A tile at the right edge: compute whole vectors in a buffer.
  static HWY_NOINLINE void edge_tile(TileFunction<T> kernel, TileArgs<T> t, int64_t rows,
                                     int64_t columns) {
    HWY_ALIGN T buffer[kTileRows * kTileColumns];
    T* c = t.c;
    const int64_t stride = t.c_row_stride;
    for (int64_t i = 0; t.result != Result::kStore && i < rows; ++i) {
      T* row = buffer + i * kTileColumns;
      for (int64_t j = 0; j < columns; ++j) row[j] = c[i * stride + j];
      for (int64_t j = columns; j < kTileColumns; ++j) row[j] = T{0};
    }
    t.c = buffer;
    t.c_row_stride = kTileColumns;
    kernel(t);
    const hn::ScalableTag<T> d;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; j += kLanes) {
        const auto v = hn::Load(d, buffer + i * kTileColumns + j);
        if (j + kLanes <= columns) {
          hn::StoreU(v, d, c + i * stride + j);
        } else {
          store_part(v, d, c + i * stride + j, static_cast<size_t>(columns - j));
        }
      }
    }
  }

  // A narrow tile has one vector of columns.
  static TileFunction<T> tile_kernel(bool a_packed, bool narrow, int64_t rows) {
    const size_t i = static_cast<size_t>(rows - 1);
    if (narrow) {
      return a_packed ? kTiles<T, 1, TileForm::kPackedA>[i] : kTiles<T, 1, TileForm::kStridedA>[i];
    }
    return a_packed ? kTiles<T, kTileVectors, TileForm::kPackedA>[i]
                    : kTiles<T, kTileVectors, TileForm::kStridedA>[i];
  }

  // All row tiles times one panel over one k block.
  static void panel_step(const GemmBlock& g, const Step& s, int64_t panel) {
    const int64_t tiles = g.tile_end - g.tile_begin;
    const int64_t first = g.tiles.start(g.tile_begin);
    const int64_t j0 = panel * kPanel;
    const int64_t share = divide_up(s.next_lines, tiles);  // of the prefetches, for each tile
    TileArgs<T> t{};
    t.a_row_stride = s.a_row_stride;
    t.a_col_stride = s.a_col_stride;
    t.b_step = kPanel;
    t.k = s.k;
    t.c_row_stride = g.c_row_stride;
    t.result = s.result;
    t.segment = tiles > 2 ? 16 : 4;  // one tile alone must fetch two lines a step: spread them
    t.segment_lines = divide_up(share, HWY_MAX(int64_t{1}, s.k / t.segment));
    const bool finishes = s.last && by_tiles(g);
    for (int64_t sub = 0; sub < kPanel && j0 + sub < g.n; sub += kTileColumns) {
      const int64_t columns = HWY_MIN(kTileColumns, g.n - j0 - sub);
      t.b = s.b + sub;
      for (int64_t i = g.tile_begin; i < g.tile_end; ++i) {
        const int64_t row = g.tiles.start(i), rows = g.tiles.height(i);
        t.a = s.a_packed ? s.a + (row - first) * s.a_packed_k + s.a_packed_skip * rows
                         : s.a + row * s.a_row_stride;
        t.c = static_cast<T*>(g.c) + row * g.c_row_stride + j0 + sub;
        const int64_t from = HWY_MIN((i - g.tile_begin) * share, s.next_lines);
        const int64_t to = sub == 0 ? HWY_MIN(from + share, s.next_lines) : from;
        t.prefetch = s.next + from * 64;
        t.prefetch_end = s.next + to * 64;
        const TileFunction<T> kernel = tile_kernel(s.a_packed, columns <= kLanes, rows);
        if (columns == kTileColumns) {
          kernel(t);
        } else {
          edge_tile(kernel, t, rows, columns);
        }
        if (finishes) finish_tile(g, row, rows, j0 + sub, columns);
      }
    }
  }

  static void pack_rows(const GemmBlock& g, int64_t k0, int64_t kc) {
    const int64_t first = g.tiles.start(g.tile_begin);
    for (int64_t i = g.tile_begin; i < g.tile_end; ++i) {
      const int64_t row = g.tiles.start(i), rows = g.tiles.height(i);
      pack_strip<T>(static_cast<const T*>(g.a) + row * g.a_row_stride + k0 * g.a_col_stride,
                    g.a_row_stride, g.a_col_stride, rows, rows, kc,
                    static_cast<T*>(g.local_a) + (row - first) * kc);
    }
  }

  static void pack_panels(const GemmBlock& g, int64_t panel, int64_t count, int64_t k0,
                          int64_t kc) {
    for (int64_t q = 0; q < count; ++q) {
      const int64_t j = (panel + q) * kPanel;
      pack_strip<T>(static_cast<const T*>(g.b) + j * g.b_col_stride + k0 * g.b_row_stride,
                    g.b_col_stride, g.b_row_stride, HWY_MIN(kPanel, g.n - j), kPanel, kc,
                    static_cast<T*>(g.local_b) + q * kc * kPanel);
    }
  }

  // A for the k block at k0. Packed tiles hold `packed_k` steps from packed_k0 on: the block, or
  // all.
  static void set_a(const GemmBlock& g, int64_t k0, int64_t packed_k0, int64_t packed_k, Step& s) {
    if (g.a_mode == OperandMode::kDirect) {
      s.a = static_cast<const T*>(g.a) + k0 * g.a_col_stride;
      s.a_row_stride = g.a_row_stride;
      s.a_col_stride = g.a_col_stride;
      return;
    }
    s.a_packed = true;
    s.a = static_cast<const T*>(g.a_mode == OperandMode::kLocal ? g.local_a : g.a);
    s.a_packed_k = packed_k;
    s.a_packed_skip = k0 - packed_k0;
  }

  static const T* packed_at(const GemmBlock& g, int64_t panel, int64_t k0) {
    return static_cast<const T*>(g.b) + (panel * g.k + k0) * kPanel;
  }

  // The panels [p, p + count) over one k block; `next` is the block of packed B that follows.
  static void panels_step(const GemmBlock& g, Step s, int64_t p, int64_t count, int64_t k0,
                          const T* next, int64_t next_k) {
    s.result = g.accumulate ? Result::kContinue : k0 > 0 ? Result::kAdd : Result::kStore;
    s.last = k0 + s.k == g.k;
    const bool local = g.b_mode == OperandMode::kLocal;
    if (local) pack_panels(g, p, count, k0, s.k);
    if (next) {
      s.next = reinterpret_cast<const char*>(next);
      s.next_lines = next_k * kPanelBytes / 64;
    }
    for (int64_t q = 0; q < count; ++q) {
      s.b = local ? static_cast<const T*>(g.local_b) + q * s.k * kPanel : packed_at(g, p + q, k0);
      panel_step(g, s, p + q);
    }
  }

  // The panels [finished, done) are complete.
  static void finish_panels(const GemmBlock& g, int64_t& finished, int64_t done) {
    if (by_tiles(g) || (done - finished < g.finish_panels && done < g.panel_end)) return;
    finish(g, finished * kPanel, HWY_MIN(g.n, done * kPanel) - finished * kPanel);
    finished = done;
  }

  // Many rows: a k block of A stays in the second-level cache while all panels pass by.
  static void multiply_k_outer(const GemmBlock& g) {
    const int64_t group = g.b_mode == OperandMode::kLocal ? g.local_panels : 1;
    int64_t finished = g.panel_begin;
    int64_t k0 = 0;
    do {
      Step s;
      s.k = HWY_MIN(g.block_k, g.k - k0);
      const bool local_a = g.a_mode == OperandMode::kLocal;
      if (local_a) pack_rows(g, k0, s.k);
      set_a(g, k0, local_a ? k0 : 0, local_a ? s.k : g.k, s);
      const int64_t k1 = k0 + s.k;
      for (int64_t p = g.panel_begin; p < g.panel_end; p += group) {
        const int64_t count = HWY_MIN(group, g.panel_end - p);
        const bool last = p + count == g.panel_end;
        const T* next = nullptr;
        if (g.stream && !last) next = packed_at(g, p + 1, k0);
        if (g.stream && last && k1 < g.k) next = packed_at(g, g.panel_begin, k1);
        panels_step(g, s, p, count, k0, next, last ? HWY_MIN(g.block_k, g.k - k1) : s.k);
        if (k1 == g.k) finish_panels(g, finished, p + count);
      }
      k0 = k1;
    } while (k0 < g.k);
  }

  // Few rows: B is read once and in order, A stays in the cache.
  static void multiply_panel_outer(const GemmBlock& g) {
    const int64_t group = g.b_mode == OperandMode::kLocal ? g.local_panels : 1;
    int64_t finished = g.panel_begin;
    if (g.a_mode == OperandMode::kLocal) pack_rows(g, 0, g.k);
    for (int64_t p = g.panel_begin; p < g.panel_end; p += group) {
      const int64_t count = HWY_MIN(group, g.panel_end - p);
      int64_t k0 = 0;
      do {
        Step s;
        s.k = HWY_MIN(g.block_k, g.k - k0);
        set_a(g, k0, 0, g.k, s);
        const int64_t k1 = k0 + s.k;
        const bool last = k1 == g.k;
        const T* next = nullptr;
        if (g.stream && !last) next = packed_at(g, p, k1);
        if (g.stream && last && p + 1 < g.panel_end) next = packed_at(g, p + 1, 0);
        panels_step(g, s, p, count, k0, next, HWY_MIN(g.block_k, last ? g.k : g.k - k1));
        k0 = k1;
      } while (k0 < g.k);
      finish_panels(g, finished, p + count);
    }
  }

  // Kernels of several panels or column groups for one or two rows.
  static TileFunction<T> wide_kernel(int64_t rows, bool stream) {
    if (rows == 1) return &WideTile<T, 1, kWide1, false>::run;
    return stream ? &WideTile<T, 2, kWide2, true>::run : &WideTile<T, 2, kWide2, false>::run;
  }

  // One or two rows: all of k at once, several panels at once. Returns the first panel left over.
  static int64_t multiply_wide(const GemmBlock& g, int64_t& finished) {
    const int64_t row = g.tiles.start(g.tile_begin), rows = g.tiles.height(g.tile_begin);
    const int64_t group = rows == 1 ? kWide1 : kWide2;
    const TileFunction<T> kernel = wide_kernel(rows, g.stream);
    TileArgs<T> t{};
    Step s;
    if (g.a_mode == OperandMode::kLocal) pack_rows(g, 0, g.k);
    set_a(g, 0, 0, g.k, s);
    t.a = s.a_packed ? s.a : s.a + row * s.a_row_stride;
    t.a_row_stride = s.a_packed ? 1 : s.a_row_stride;
    t.a_col_stride = s.a_packed ? rows : s.a_col_stride;
    t.b_step = kPanel;
    t.b_panel = g.k * kPanel;
    t.k = g.k;
    t.c_row_stride = g.c_row_stride;
    t.result = g.accumulate ? Result::kContinue : Result::kStore;
    int64_t p = g.panel_begin;
    for (; p + group <= g.panel_end && (p + group) * kPanel <= g.n; p += group) {
      t.b = packed_at(g, p, 0);
      t.c = static_cast<T*>(g.c) + row * g.c_row_stride + p * kPanel;
      kernel(t);
      if (p + group - finished < g.finish_panels) continue;
      finish(g, finished * kPanel, (p + group - finished) * kPanel);
      finished = p + group;
    }
    return p;
  }

  static void multiply(const GemmBlock& g) {
    GemmBlock rest = g;
    if (kWide && g.b_mode == OperandMode::kPacked && g.tile_end - g.tile_begin == 1 &&
        g.tiles.height(g.tile_begin) <= 2) {
      int64_t finished = g.panel_begin;
      const int64_t left = multiply_wide(g, finished);
      if (left > finished) finish(g, finished * kPanel, (left - finished) * kPanel);
      rest.panel_begin = left;
      if (rest.panel_begin == rest.panel_end) return;
    }
    g.panel_outer ? multiply_panel_outer(rest) : multiply_k_outer(rest);
  }

  template <int kVectors>
  static void direct_columns(const GemmBlock& g, TileArgs<T>& t, int64_t j, int64_t columns) {
    t.b = static_cast<const T*>(g.b) + j;
    t.last_lanes = columns - (kVectors - 1) * kLanes;
    for (int64_t i = g.tile_begin; i < g.tile_end; ++i) {
      const int64_t row = g.tiles.start(i);
      t.a = static_cast<const T*>(g.a) + row * g.a_row_stride;
      t.c = static_cast<T*>(g.c) + row * g.c_row_stride + j;
      kTiles<T, kVectors, TileForm::kDirect>[static_cast<size_t>(g.tiles.height(i) - 1)](t);
      if (by_tiles(g)) finish_tile(g, row, g.tiles.height(i), j, columns);
    }
  }

  // B's columns are adjacent and it is read about once, or small enough for the cache: no packing.
  static void multiply_direct(const GemmBlock& g) {
    TileArgs<T> t{};
    t.a_row_stride = g.a_row_stride;
    t.a_col_stride = g.a_col_stride;
    t.b_step = g.b_row_stride;
    t.b_panel = kPanel;
    t.k = g.k;
    t.c_row_stride = g.c_row_stride;
    t.result = g.accumulate ? Result::kContinue : Result::kStore;
    const int64_t begin = g.panel_begin * kPanel, end = HWY_MIN(g.n, g.panel_end * kPanel);
    const int64_t row = g.tiles.start(g.tile_begin), rows = g.tiles.height(g.tile_begin);
    int64_t j = begin;
    if (kWide && g.tile_end - g.tile_begin == 1 && rows <= 2) {
      const int64_t columns = (rows == 1 ? kWide1 : kWide2) * kPanel;
      const TileFunction<T> kernel = wide_kernel(rows, false);
      t.a = static_cast<const T*>(g.a) + row * g.a_row_stride;
      for (; j + columns <= end; j += columns) {
        t.b = static_cast<const T*>(g.b) + j;
        t.c = static_cast<T*>(g.c) + row * g.c_row_stride + j;
        kernel(t);
      }
    }
    if (by_tiles(g) && j > begin) finish(g, begin, j - begin);
    for (; j < end; j += kTileColumns) {
      const int64_t columns = HWY_MIN(kTileColumns, end - j);
      if (columns > kTileColumns - kLanes) {
        direct_columns<kTileVectors>(g, t, j, columns);
      } else {
        for (int64_t v = 0; v < columns; v += kLanes) {
          direct_columns<1>(g, t, j + v, HWY_MIN(kLanes, columns - v));
        }
      }
    }
    if (!by_tiles(g)) finish(g, begin, end - begin);
  }

  static const GemmKernels& table() {
    static constexpr GemmKernels kTable{
        HWY_TARGET, kTileRows,       !kMasksTouch || kLanes == 1, kLanes, &pack_strip<T>,
        &multiply,  &multiply_direct};
    return kTable;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();
#endif  // RLX_GEMM_LOOPS_INL_H_
