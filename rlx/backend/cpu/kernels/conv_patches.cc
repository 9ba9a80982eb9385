#include "rlx/backend/cpu/kernels/conv_patches.h"

#include <algorithm>

#include "rlx/backend/cpu/gemm/gemm_layout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/conv_patches.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/lines-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class S>
void LoadLines(const PatchGrid& grid, const S* x, const PatchBlock& b, Wide<S>* lines) {
  const WindowGeometry& g = grid.geometry();
  const int64_t rows = g.cells(1, b.lines), first_y = b.y * g.stride[1] - g.before[1];
  for (int64_t c = 0; c < grid.channels(); ++c) {
    for (int64_t kz = 0; kz < g.kernel[0]; ++kz) {
      const int64_t z = b.z * g.stride[0] + kz * g.dilation[0] - g.before[0];
      const bool plane = z >= 0 && z < g.in[0];
      Wide<S>* to = lines + (c * g.kernel[0] + kz) * grid.line_rows() * g.line();
      for (int64_t row = 0; row < rows; ++row, to += g.line()) {
        const int64_t y = first_y + row;
        const bool inside = plane && y >= 0 && y < g.in[1];
        const int64_t from = ((c * g.in[0] + z) * g.in[1] + y) * g.in[2];
        LoadLine(g, inside ? x + from : nullptr, Wide<S>(0), to);
      }
    }
  }
}

// Whole vectors: what passes the end is overwritten by what is copied next, or is slack.
template <class T>
HWY_INLINE void CopyOver(const T* from, T* to, int64_t count) {
  const hn::ScalableTag<T> d;
  const auto lanes = int64_t(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
}

template <class T>
void PackPanels(const PatchGrid& grid, const T* lines, const PatchBlock& b, T* packed) {
  constexpr int64_t kColumns = panel_columns(sizeof(T));
  struct Segment {
    int64_t from, to, count;
  };
  const WindowGeometry& g = grid.geometry();
  const int64_t columns = grid.columns(b.lines), depth = grid.depth(), width = g.out[2];
  const int64_t* taps = grid.tap_offsets().data();
  for (int64_t first = 0; first < columns; first += kColumns) {
    const int64_t end = std::min(first + kColumns, columns);
    Segment segments[kColumns];
    int64_t count = 0;
    for (int64_t j = first; j < end;) {
      const int64_t x = j % width, n = std::min(width - x, end - j);
      segments[count++] = {j / width * g.stride[1] * g.line() + x, j - first, n};
      j += n;
    }
    const bool partial = end - first < kColumns;
    for (int64_t r = 0; r < depth; ++r, packed += kColumns) {
      if (partial) std::fill(packed + (end - first), packed + kColumns, T(0));
      for (int64_t s = 0; s < count; ++s) {
        CopyOver(lines + taps[r] + segments[s].from, packed + segments[s].to, segments[s].count);
      }
    }
  }
}

template <class T>
void PackRows(const PatchGrid& grid, const T* lines, const PatchBlock& b, T* rows) {
  const WindowGeometry& g = grid.geometry();
  for (const int64_t tap : grid.tap_offsets()) {
    for (int64_t line = 0; line < b.lines; ++line, rows += g.out[2]) {
      CopyOver(lines + tap + line * g.stride[1] * g.line(), rows, g.out[2]);
    }
  }
}

// `kRows` rows of patches times dy. One lane each, as a row is one chain of multiply-adds; several
// rows keep the units busy.
template <int kRows, class T>
HWY_INLINE void AddRowProducts(const PatchGrid& grid, const T* lines, const int64_t* taps,
                               const PatchBlock& b, const T* dy, T* sum) {
  const hn::CappedTag<T, 1> d;
  const WindowGeometry& g = grid.geometry();
  hn::Vec<decltype(d)> chain[kRows];
  for (int r = 0; r < kRows; ++r) chain[r] = hn::LoadU(d, sum + r);
  for (int64_t l = 0; l < b.lines; ++l, lines += g.stride[1] * g.line()) {
    for (int64_t x = 0; x < g.out[2]; ++x) {
      const auto v = hn::LoadU(d, dy++);
      for (int r = 0; r < kRows; ++r) {
        chain[r] = hn::MulAdd(v, hn::LoadU(d, lines + taps[r] + x), chain[r]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) hn::StoreU(chain[r], d, sum + r);
}

template <class T>
void AddRowProduct(const PatchGrid& grid, const T* lines, const PatchBlock& b, const T* dy,
                   T* sum) {
  const int64_t* taps = grid.tap_offsets().data();
  int64_t r = 0;
  for (; r + 9 <= grid.depth(); r += 9) AddRowProducts<9>(grid, lines, taps + r, b, dy, sum + r);
  for (; r + 4 <= grid.depth(); r += 4) AddRowProducts<4>(grid, lines, taps + r, b, dy, sum + r);
  for (; r < grid.depth(); ++r) AddRowProducts<1>(grid, lines, taps + r, b, dy, sum + r);
}

// Stride 1: adds the taps kx = 0, 1, ... of an output line to the line `to` of x. Tap k is the line
// `from` + k * row, times scale[k] if kScaled. Cells that all taps reach take them in registers;
// the order of a cell's terms is the same for all.
template <bool kScaled, class T>
HWY_INLINE void AddTaps(const WindowGeometry& g, const TapRange* ranges, const T* from, int64_t row,
                        const T* scale, T* to) {
  const hn::ScalableTag<T> d;
  const int64_t taps = g.kernel[2];
  int64_t begin = 0, end = g.in[2];
  for (int64_t k = 0; k < taps; ++k) {
    begin = std::max(begin, ranges[k].first);
    end = std::min(end, ranges[k].last());
  }
  end = std::max(begin, end);
  ForRow(d, size_t(end - begin), [&](size_t i, size_t n) HWY_ATTR {
    const int64_t cell = begin + int64_t(i);
    auto v = LoadCount(d, to + cell, n);
    for (int64_t k = 0; k < taps; ++k) {
      auto term = LoadCount(d, from + (k * row + ranges[k].output(cell)), n);
      if constexpr (kScaled) term = hn::Mul(term, hn::Set(d, scale[k]));
      v = hn::Add(v, term);
    }
    StoreCount(v, d, to + cell, n);
  });
  for (int64_t k = 0; k < taps; ++k) {
    const TapRange& r = ranges[k];
    const auto add = [&](int64_t first, int64_t last) {
      for (int64_t cell = first; cell < last; ++cell) {
        const T term = from[k * row + r.output(cell)];
        to[cell] += kScaled ? term * scale[k] : term;
      }
    };
    add(r.first, std::min(begin, r.last()));
    add(std::max(end, r.first), r.last());
  }
}

template <bool kScaled, class T>
HWY_INLINE void AddLine(const WindowGeometry& g, const TapRange* ranges, const T* from, int64_t row,
                        const T* scale, T* to) {
  const int64_t stride = g.stride[2];
  if (stride == 1) return AddTaps<kScaled>(g, ranges, from, row, scale, to);
  for (int64_t k = 0; k < g.kernel[2]; ++k, from += row) {
    const TapRange& r = ranges[k];
    T* cells = to + r.first;
    for (int64_t i = r.begin; i < r.end; ++i, cells += stride) {
      *cells += kScaled ? from[i] * scale[k] : from[i];
    }
  }
}

// f(first tap, line of x) for what an output line (counted through all planes) adds to one channel,
// by kernel line.
template <class F>
HWY_INLINE void ForInputLines(const WindowGeometry& g, int64_t line, F f) {
  const int64_t oz = line / g.out[1], oy = line % g.out[1];
  for (int64_t kz = 0; kz < g.kernel[0]; ++kz) {
    const int64_t z = oz * g.stride[0] + kz * g.dilation[0] - g.before[0];
    if (z < 0 || z >= g.in[0]) continue;
    for (int64_t ky = 0; ky < g.kernel[1]; ++ky) {
      const int64_t y = oy * g.stride[1] + ky * g.dilation[1] - g.before[1];
      if (y < 0 || y >= g.in[1]) continue;
      f((kz * g.kernel[1] + ky) * g.kernel[2], z * g.in[1] + y);
    }
  }
}

// Output line by output line, so that the order in which a cell of x takes its terms does not
// depend on how many lines or channels come in one call.
template <class T>
void AddPatches(const AdjointLines& a, const T* patches, int64_t channels, int64_t line,
                int64_t lines, T* x) {
  const WindowGeometry& g = a.geometry;
  const int64_t row = lines * g.out[2];
  for (int64_t c = 0; c < channels; ++c, patches += g.taps() * row, x += g.in_area()) {
    for (int64_t l = 0; l < lines; ++l) {
      const T* from = patches + l * g.out[2];
      ForInputLines(g, line + l, [&](int64_t tap, int64_t to) HWY_ATTR {
        AddLine<false, T>(g, a.ranges.data(), from + tap * row, row, nullptr, x + to * g.in[2]);
      });
    }
  }
}

template <class T>
void AddScaled(const AdjointLines& a, const T* dy, const T* w, T* x) {
  const WindowGeometry& g = a.geometry;
  for (int64_t line = 0; line < g.out[0] * g.out[1]; ++line, dy += g.out[2]) {
    ForInputLines(g, line, [&](int64_t tap, int64_t to) HWY_ATTR {
      AddLine<true>(g, a.ranges.data(), dy, 0, w + tap, x + to * g.in[2]);
    });
  }
}

}  // namespace

void LoadLinesOf(const PatchGrid& grid, const void* x, const PatchBlock& b, void* lines) {
  WithFloatType(grid.dtype(), [&]<class S>() {
    LoadLines(grid, static_cast<const S*>(x), b, static_cast<Wide<S>*>(lines));
  });
}

void PackPanelsOf(const PatchGrid& grid, const void* lines, const PatchBlock& b, void* packed) {
  if (grid.is_double()) {
    PackPanels(grid, static_cast<const double*>(lines), b, static_cast<double*>(packed));
  } else {
    PackPanels(grid, static_cast<const float*>(lines), b, static_cast<float*>(packed));
  }
}

void PackRowsOf(const PatchGrid& grid, const void* lines, const PatchBlock& b, void* rows) {
  if (grid.is_double()) {
    PackRows(grid, static_cast<const double*>(lines), b, static_cast<double*>(rows));
  } else {
    PackRows(grid, static_cast<const float*>(lines), b, static_cast<float*>(rows));
  }
}

void AddRowProductOf(const PatchGrid& grid, const void* lines, const PatchBlock& b, const void* dy,
                     void* sum) {
  if (grid.is_double()) {
    AddRowProduct(grid, static_cast<const double*>(lines), b, static_cast<const double*>(dy),
                  static_cast<double*>(sum));
  } else {
    AddRowProduct(grid, static_cast<const float*>(lines), b, static_cast<const float*>(dy),
                  static_cast<float*>(sum));
  }
}

void AddPatchesOf(const AdjointLines& a, bool is_double, const void* patches, int64_t channels,
                  int64_t line, int64_t lines, void* x) {
  if (is_double) {
    AddPatches(a, static_cast<const double*>(patches), channels, line, lines,
               static_cast<double*>(x));
  } else {
    AddPatches(a, static_cast<const float*>(patches), channels, line, lines,
               static_cast<float*>(x));
  }
}

void AddScaledOf(const AdjointLines& a, bool is_double, const void* dy, const void* w, void* x) {
  if (is_double) {
    AddScaled(a, static_cast<const double*>(dy), static_cast<const double*>(w),
              static_cast<double*>(x));
  } else {
    AddScaled(a, static_cast<const float*>(dy), static_cast<const float*>(w),
              static_cast<float*>(x));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(LoadLinesOf);
HWY_EXPORT(PackPanelsOf);
HWY_EXPORT(PackRowsOf);
HWY_EXPORT(AddRowProductOf);
HWY_EXPORT(AddPatchesOf);
HWY_EXPORT(AddScaledOf);

namespace {

// A block of patches stays in the second-level cache.
constexpr int64_t kBlockBytes = 512 << 10;

// As many lines as fit, but rather fewer if they fill their panels better.
int64_t choose_lines(const WindowGeometry& g, int64_t depth, int64_t element_bytes) {
  const int64_t row =
      checked_mul(checked_mul(std::max<int64_t>(depth, 1), g.out[2]), element_bytes);
  const int64_t most = std::clamp<int64_t>(kBlockBytes / row, 1, g.out[1]);
  const int64_t panel = panel_columns(element_bytes);
  int64_t best = most;
  double best_use = 0;
  for (int64_t lines = most; lines >= std::max<int64_t>(most / 2, 1); --lines) {
    const int64_t columns = lines * g.out[2];
    const double use = double(columns) / double(round_up(columns, panel));
    if (use > best_use + 0.03) {
      best = lines;
      best_use = use;
    }
  }
  return best;
}

}  // namespace

PatchGrid::PatchGrid(const WindowGeometry& geometry, int64_t channels, DType dtype,
                     int64_t block_lines)
    : g_(geometry), dtype_(dtype), channels_(channels) {
  block_lines_ = block_lines > 0 ? block_lines : choose_lines(g_, depth(), element_bytes());
  blocks_y_ = ceil_div(g_.out[1], block_lines_);
  line_rows_ = g_.cells(1, block_lines_);
  for (int64_t c = 0; c < channels_; ++c) {
    for (int64_t kz = 0; kz < g_.kernel[0]; ++kz) {
      for (int64_t ky = 0; ky < g_.kernel[1]; ++ky) {
        const int64_t row = (c * g_.kernel[0] + kz) * line_rows_ + ky * g_.dilation[1];
        for (int64_t kx = 0; kx < g_.kernel[2]; ++kx) {
          tap_offsets_.push_back(row * g_.line() + g_.tap_offset(kx));
        }
      }
    }
  }
}

PatchBlock PatchGrid::block(int64_t i) const {
  const int64_t y = i % blocks_y_ * block_lines_;
  return {i / blocks_y_, y, std::min(block_lines_, g_.out[1] - y)};
}

int64_t PatchGrid::lines_bytes() const {
  const int64_t lines = checked_mul(checked_mul(channels_, g_.kernel[0]), line_rows_);
  const int64_t elements = checked_add(checked_mul(lines, g_.line()), kLineSlack);
  return align64(checked_mul(elements, element_bytes()));
}

int64_t PatchGrid::panels_bytes() const {
  const int64_t panels = ceil_div(columns(block_lines_), panel_columns(element_bytes()));
  const int64_t bytes = checked_mul(checked_mul(panels, depth()), kPanelBytes);
  return align64(checked_add(bytes, kLineSlack * element_bytes()));
}

int64_t PatchGrid::rows_bytes() const {
  const int64_t elements = checked_mul(depth(), columns(block_lines_));
  return align64(checked_mul(checked_add(elements, kLineSlack), element_bytes()));
}

void PatchGrid::load_lines(const void* x, const PatchBlock& b, void* lines) const {
  HWY_DYNAMIC_DISPATCH(LoadLinesOf)(*this, x, b, lines);
}

void PatchGrid::pack_panels(const void* lines, const PatchBlock& b, void* packed) const {
  HWY_DYNAMIC_DISPATCH(PackPanelsOf)(*this, lines, b, packed);
}

void PatchGrid::pack_rows(const void* lines, const PatchBlock& b, void* rows) const {
  HWY_DYNAMIC_DISPATCH(PackRowsOf)(*this, lines, b, rows);
}

void PatchGrid::add_row_product(const void* lines, const PatchBlock& b, const void* dy,
                                void* sum) const {
  HWY_DYNAMIC_DISPATCH(AddRowProductOf)(*this, lines, b, dy, sum);
}

AdjointLines::AdjointLines(const WindowGeometry& g) : geometry(g) {
  const int64_t stride = g.stride[2];
  for (int64_t k = 0; k < g.kernel[2]; ++k) {
    const int64_t offset = g.before[2] - k * g.dilation[2];
    const int64_t begin = std::clamp<int64_t>(ceil_div(offset, stride), 0, g.out[2]);
    const int64_t end = std::clamp<int64_t>(ceil_div(g.in[2] + offset, stride), begin, g.out[2]);
    ranges.push_back({begin, end, begin * stride - offset});
  }
}

void add_patches(const AdjointLines& a, bool is_double, const void* patches, int64_t channels,
                 int64_t line, int64_t lines, void* x) {
  HWY_DYNAMIC_DISPATCH(AddPatchesOf)(a, is_double, patches, channels, line, lines, x);
}

void add_scaled(const AdjointLines& a, bool is_double, const void* dy, const void* w, void* x) {
  HWY_DYNAMIC_DISPATCH(AddScaledOf)(a, is_double, dy, w, x);
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
