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

template <class T>
HWY_INLINE void AddCells(const T* from, int64_t count, T* to, int64_t stride) {
  const hn::ScalableTag<T> d;
  if (stride == 1) {
    ForRow(d, size_t(count), [&](size_t i, size_t n) HWY_ATTR {
      StoreCount(hn::Add(LoadCount(d, to + i, n), LoadCount(d, from + i, n)), d, to + i, n);
    });
  } else {
    for (int64_t i = 0; i < count; ++i) to[i * stride] += from[i];
  }
}

template <class T>
void AddPatches(const WindowGeometry& g, const T* patches, int64_t channels, int64_t line,
                int64_t lines, T* x) {
  const auto inside = [&](int axis, int64_t out, int64_t k, int64_t* cell) {
    *cell = out * g.stride[axis] + k * g.dilation[axis] - g.before[axis];
    return *cell >= 0 && *cell < g.in[axis];
  };
  for (int64_t c = 0; c < channels; ++c, x += g.in_area()) {
    for (int64_t tap = 0; tap < g.taps(); ++tap, patches += lines * g.out[2]) {
      const int64_t kz = tap / (g.kernel[1] * g.kernel[2]), ky = tap / g.kernel[2] % g.kernel[1];
      const TapRange range = RangeOfTap(g, tap % g.kernel[2]);
      if (range.begin == range.end) continue;
      for (int64_t l = 0; l < lines; ++l) {
        int64_t z, y;
        if (!inside(0, (line + l) / g.out[1], kz, &z)) continue;
        if (!inside(1, (line + l) % g.out[1], ky, &y)) continue;
        AddCells(patches + l * g.out[2] + range.begin, range.end - range.begin,
                 x + (z * g.in[1] + y) * g.in[2] + range.first, g.stride[2]);
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

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(LoadLinesOf);
HWY_EXPORT(PackPanelsOf);
HWY_EXPORT(PackRowsOf);
HWY_EXPORT(AddPatchesOf);

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
