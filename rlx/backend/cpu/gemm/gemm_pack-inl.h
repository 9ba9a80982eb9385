// Packs strips of a matrix: the lanes of a strip (rows of A, columns of B) become adjacent.
// Included once per instruction set.
#if defined(RLX_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RLX_GEMM_PACK_INL_H_
#undef RLX_GEMM_PACK_INL_H_
#else
#define RLX_GEMM_PACK_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether masked loads and stores touch lanes that are off. (Those of the scalar target do.)
constexpr bool kMasksTouch = HWY_MEM_OPS_MIGHT_FAULT || HWY_TARGET == HWY_SCALAR;

// Partial vectors; never touch memory past `count` lanes.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_part(D d, const T* p, size_t count) {
  if constexpr (kMasksTouch) {
    HWY_ALIGN T buffer[hn::MaxLanes(D())] = {};
    for (size_t i = 0; i < count; ++i) buffer[i] = p[i];
    return hn::Load(d, buffer);
  } else {
    return hn::MaskedLoad(hn::FirstN(d, count), d, p);
  }
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_part(hn::Vec<D> v, D d, T* p, size_t count) {
  if constexpr (kMasksTouch) {
    HWY_ALIGN T buffer[hn::MaxLanes(D())];
    hn::Store(v, d, buffer);
    for (size_t i = 0; i < count; ++i) p[i] = buffer[i];
  } else {
    hn::BlendedStore(v, hn::FirstN(d, count), d, p);
  }
}

// Lanes are adjacent in the source too: copy.
template <class T>
void pack_copy(const T* src, int64_t step_stride, int64_t lanes, int64_t width, int64_t steps,
               T* dst) {
  const hn::ScalableTag<T> d;
  const int64_t vl = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t s = 0; s < steps; ++s, src += step_stride, dst += width) {
    int64_t i = 0;
    for (; i + vl <= lanes; i += vl) hn::StoreU(hn::LoadU(d, src + i), d, dst + i);
    if (i == width) continue;
    const int64_t rest = width - i < vl ? width - i : vl;
    store_part(load_part(d, src + i, static_cast<size_t>(lanes - i)), d, dst + i,
               static_cast<size_t>(rest));
    for (i += rest; i < width; ++i) dst[i] = T{0};
  }
}

template <class T>
void pack_general(const T* src, int64_t lane_stride, int64_t step_stride, int64_t lanes,
                  int64_t width, int64_t steps, T* dst) {
  for (int64_t s = 0; s < steps; ++s, src += step_stride, dst += width) {
    for (int64_t i = 0; i < lanes; ++i) dst[i] = src[i * lane_stride];
    for (int64_t i = lanes; i < width; ++i) dst[i] = T{0};
  }
}

#if HWY_TARGET != HWY_SCALAR
// Block q of v (16 bytes) holds one step of four (f32) or two (f64) lanes; blocks are `stride`
// apart.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_blocks(D d, hn::Vec<D> v, T* dst, int64_t stride) {
  if constexpr (hn::MaxLanes(D()) * sizeof(T) > 16) {
    const hn::Half<D> half;
    store_blocks(half, hn::LowerHalf(half, v), dst, stride);
    store_blocks(half, hn::UpperHalf(half, v), dst + stride * (hn::MaxLanes(D()) * sizeof(T) / 32),
                 stride);
  } else {
    hn::StoreU(v, d, dst);
  }
}

// One group of lanes (as many as fill 16 bytes) over a full vector of steps; steps are adjacent in
// the source. Interleaving works within 16-byte blocks, which is just what the transpose needs.
template <class D>
HWY_INLINE void transpose_group(D d, const float* src, int64_t lane_stride, int64_t width,
                                float* dst) {
  const hn::Repartition<double, D> dd;
  const auto r0 = hn::LoadU(d, src), r1 = hn::LoadU(d, src + lane_stride);
  const auto r2 = hn::LoadU(d, src + 2 * lane_stride), r3 = hn::LoadU(d, src + 3 * lane_stride);
  const auto a = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1));
  const auto b = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
  const auto e = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1));
  const auto f = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
  store_blocks(d, hn::BitCast(d, hn::InterleaveLower(dd, a, b)), dst, 4 * width);
  store_blocks(d, hn::BitCast(d, hn::InterleaveUpper(dd, a, b)), dst + width, 4 * width);
  store_blocks(d, hn::BitCast(d, hn::InterleaveLower(dd, e, f)), dst + 2 * width, 4 * width);
  store_blocks(d, hn::BitCast(d, hn::InterleaveUpper(dd, e, f)), dst + 3 * width, 4 * width);
}

template <class D>
HWY_INLINE void transpose_group(D d, const double* src, int64_t lane_stride, int64_t width,
                                double* dst) {
  const auto r0 = hn::LoadU(d, src), r1 = hn::LoadU(d, src + lane_stride);
  store_blocks(d, hn::InterleaveLower(d, r0, r1), dst, 2 * width);
  store_blocks(d, hn::InterleaveUpper(d, r0, r1), dst + width, 2 * width);
}

// Steps are adjacent in the source: transpose. Needs at least one group of lanes; the last group
// overlaps its neighbour instead of leaving single lanes.
template <class T>
void pack_transpose(const T* src, int64_t lane_stride, int64_t lanes, int64_t width, int64_t steps,
                    T* dst) {
  const hn::ScalableTag<T> d;
  const hn::FixedTag<T, 16 / sizeof(T)> d16;
  constexpr int64_t kGroup = 16 / sizeof(T);
  const int64_t vl = static_cast<int64_t>(hn::Lanes(d));
  int64_t s = 0;
  for (; s + vl <= steps; s += vl) {
    for (int64_t i = 0; i < lanes; i += kGroup) {
      const int64_t lane = i + kGroup <= lanes ? i : lanes - kGroup;
      transpose_group(d, src + lane * lane_stride + s, lane_stride, width, dst + s * width + lane);
    }
  }
  for (; s + kGroup <= steps; s += kGroup) {
    for (int64_t i = 0; i < lanes; i += kGroup) {
      const int64_t lane = i + kGroup <= lanes ? i : lanes - kGroup;
      transpose_group(d16, src + lane * lane_stride + s, lane_stride, width,
                      dst + s * width + lane);
    }
  }
  pack_general(src + s, lane_stride, int64_t{1}, lanes, width, steps - s, dst + s * width);
  for (int64_t t = 0; lanes < width && t < s; ++t) {
    for (int64_t i = lanes; i < width; ++i) dst[t * width + i] = T{0};
  }
}
#endif  // HWY_TARGET != HWY_SCALAR

template <class T>
void pack_strip(const void* src, int64_t lane_stride, int64_t step_stride, int64_t lanes,
                int64_t width, int64_t steps, void* dst) {
  const T* from = static_cast<const T*>(src);
  T* to = static_cast<T*>(dst);
  if (lane_stride == 1) return pack_copy(from, step_stride, lanes, width, steps, to);
#if HWY_TARGET != HWY_SCALAR
  if (step_stride == 1 && lanes >= static_cast<int64_t>(16 / sizeof(T))) {
    return pack_transpose(from, lane_stride, lanes, width, steps, to);
  }
#endif
  pack_general(from, lane_stride, step_stride, lanes, width, steps, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();
#endif  // RLX_GEMM_PACK_INL_H_
