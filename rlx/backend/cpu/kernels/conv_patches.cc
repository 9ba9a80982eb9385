#include "rlx/backend/cpu/kernels/conv_patches.h"

#include <algorithm>
#include <cstring>

#include "rlx/backend/cpu/gemm/gemm_layout.h"
#include "rlx/backend/cpu/kernels/convert.h"

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
void LoadLines(const PatchGrid& grid, const S* x, const PatchBlock& b, WideOf<S>* lines) {
  const WindowGeometry& g = grid.geometry();
  const int64_t rows = g.cells(1, b.lines), first_y = b.y * g.stride[1] - g.before[1];
  for (int64_t c = 0; c < grid.channels(); ++c) {
    for (int64_t kz = 0; kz < g.kernel[0]; ++kz) {
      const int64_t z = b.z * g.stride[0] + kz * g.dilation[0] - g.before[0];
      const bool plane = z >= 0 && z < g.in[0];
      WideOf<S>* to = lines + (c * g.kernel[0] + kz) * grid.line_rows() * g.line();
      for (int64_t row = 0; row < rows; ++row, to += g.line()) {
        const int64_t y = first_y + row;
        const bool inside = plane && y >= 0 && y < g.in[1];
        const int64_t from = ((c * g.in[0] + z) * g.in[1] + y) * g.in[2];
        LoadLine(g, inside ? x + from : nullptr, WideOf<S>(0), to);
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

// Outputs [begin, end) of a line whose tap lies in the tensor; `first` is the cell of `begin`.
struct TapRange {
  int64_t begin, end, first;
};

HWY_INLINE TapRange RangeOfTap(const WindowGeometry& g, int64_t k) {
  const int64_t offset = g.before[2] - k * g.dilation[2], stride = g.stride[2];
  const int64_t begin = std::clamp<int64_t>(ceil_div(offset, stride), 0, g.out[2]);
  const int64_t end = std::clamp<int64_t>(ceil_div(g.in[2] + offset, stride), begin, g.out[2]);
  return {begin, end, begin * stride - offset};
}

template <bool kScaled, class T>
HWY_INLINE void AddCells(const T* from, T scale, int64_t count, T* to, int64_t stride) {
  const hn::ScalableTag<T> d;
  if (stride == 1) {
    const auto factor = hn::Set(d, scale);
    ForRow(d, size_t(count), [&](size_t i, size_t n) HWY_ATTR {
      auto v = LoadCount(d, from + i, n);
      if constexpr (kScaled) v = hn::Mul(v, factor);
      StoreCount(hn::Add(LoadCount(d, to + i, n), v), d, to + i, n);
    });
  } else {
    for (int64_t i = 0; i < count; ++i) to[i * stride] += kScaled ? from[i] * scale : from[i];
  }
}

// One tap of one channel: its lines `from`, times `scale` if kScaled, go to the plane x.
template <bool kScaled, class T>
HWY_INLINE void AddTap(const WindowGeometry& g, const TapRange& range, int64_t kz, int64_t ky,
                       const T* from, T scale, int64_t line, int64_t lines, T* x) {
  int64_t oz = line / g.out[1], oy = line % g.out[1];
  for (int64_t l = 0; l < lines; ++l, from += g.out[2]) {
    const int64_t z = oz * g.stride[0] + kz * g.dilation[0] - g.before[0];
    const int64_t y = oy * g.stride[1] + ky * g.dilation[1] - g.before[1];
    if (++oy == g.out[1]) {
      oy = 0;
      ++oz;
    }
    if (z < 0 || z >= g.in[0] || y < 0 || y >= g.in[1]) continue;
    AddCells<kScaled>(from + range.begin, scale, range.end - range.begin,
                      x + (z * g.in[1] + y) * g.in[2] + range.first, g.stride[2]);
  }
}

template <class T>
void AddPatches(const WindowGeometry& g, const T* patches, int64_t channels, int64_t line,
                int64_t lines, T* x) {
  const int64_t row = lines * g.out[2];
  for (int64_t kx = 0; kx < g.kernel[2]; ++kx) {
    const TapRange range = RangeOfTap(g, kx);
    if (range.begin == range.end) continue;
    const T* from = patches + kx * row;
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t kz = 0; kz < g.kernel[0]; ++kz) {
        for (int64_t ky = 0; ky < g.kernel[1]; ++ky, from += g.kernel[2] * row) {
          AddTap<false>(g, range, kz, ky, from, T(1), line, lines, x + c * g.in_area());
        }
      }
    }
  }
}

template <class T>
void AddScaled(const WindowGeometry& g, const T* dy, const T* w, T* x) {
  for (int64_t kx = 0; kx < g.kernel[2]; ++kx) {
    const TapRange range = RangeOfTap(g, kx);
    if (range.begin == range.end) continue;
    for (int64_t kz = 0; kz < g.kernel[0]; ++kz) {
      for (int64_t ky = 0; ky < g.kernel[1]; ++ky) {
        const T scale = w[(kz * g.kernel[1] + ky) * g.kernel[2] + kx];
        AddTap<true>(g, range, kz, ky, dy, scale, 0, g.out[0] * g.out[1], x);
      }
    }
  }
}

}  // namespace

void LoadLinesOf(const PatchGrid& grid, const void* x, const PatchBlock& b, void* lines) {
  switch (grid.dtype()) {
    case DType::kF16:
      return LoadLines(grid, static_cast<const f16*>(x), b, static_cast<float*>(lines));
    case DType::kBF16:
      return LoadLines(grid, static_cast<const bf16*>(x), b, static_cast<float*>(lines));
    case DType::kF64:
      return LoadLines(grid, static_cast<const double*>(x), b, static_cast<double*>(lines));
    default:
      return LoadLines(grid, static_cast<const float*>(x), b, static_cast<float*>(lines));
  }
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

void AddPatchesOf(const WindowGeometry& g, bool is_double, const void* patches, int64_t channels,
                  int64_t line, int64_t lines, void* x) {
  if (is_double) {
    AddPatches(g, static_cast<const double*>(patches), channels, line, lines,
               static_cast<double*>(x));
  } else {
    AddPatches(g, static_cast<const float*>(patches), channels, line, lines,
               static_cast<float*>(x));
  }
}

void AddScaledOf(const WindowGeometry& g, bool is_double, const void* dy, const void* w, void* x) {
  if (is_double) {
    AddScaled(g, static_cast<const double*>(dy), static_cast<const double*>(w),
              static_cast<double*>(x));
  } else {
    AddScaled(g, static_cast<const float*>(dy), static_cast<const float*>(w),
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
HWY_EXPORT(AddPatchesOf);
HWY_EXPORT(AddScaledOf);

namespace {

// A block of patches stays in the second-level cache.
constexpr int64_t kBlockBytes = 512 << 10;

int64_t align64(int64_t bytes) { return round_up(bytes, 64); }

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

PatchGrid::PatchGrid(const WindowGeometry& geometry, int64_t channels, DType dtype)
    : g_(geometry), dtype_(dtype), channels_(channels) {
  block_lines_ = choose_lines(g_, depth(), element_bytes());
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

void add_patches(const WindowGeometry& g, bool is_double, const void* patches, int64_t channels,
                 int64_t line, int64_t lines, void* x) {
  HWY_DYNAMIC_DISPATCH(AddPatchesOf)(g, is_double, patches, channels, line, lines, x);
}

void add_scaled(const WindowGeometry& g, bool is_double, const void* dy, const void* w, void* x) {
  HWY_DYNAMIC_DISPATCH(AddScaledOf)(g, is_double, dy, w, x);
}

void widen_elements(DType dtype, const void* from, int64_t count, void* to) {
  if (dtype == DType::kF16) {
    f16_to_f32(static_cast<const uint16_t*>(from), static_cast<float*>(to), count);
  } else if (dtype == DType::kBF16) {
    bf16_to_f32(static_cast<const uint16_t*>(from), static_cast<float*>(to), count);
  } else {
    std::memcpy(to, from, size_t(count * size_of(dtype)));
  }
}

void narrow_elements(DType dtype, const void* from, int64_t count, void* to) {
  if (dtype == DType::kF16) {
    f32_to_f16(static_cast<const float*>(from), static_cast<uint16_t*>(to), count);
  } else if (dtype == DType::kBF16) {
    f32_to_bf16(static_cast<const float*>(from), static_cast<uint16_t*>(to), count);
  } else {
    std::memcpy(to, from, size_t(count * size_of(dtype)));
  }
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
