// Loading padded lines (window_geometry.h). Include after "hwy/foreach_target.h"; lives in
// rlx::cpu::HWY_NAMESPACE.

#if defined(RLX_BACKEND_CPU_KERNELS_LINES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RLX_BACKEND_CPU_KERNELS_LINES_INL_H_
#undef RLX_BACKEND_CPU_KERNELS_LINES_INL_H_
#else
#define RLX_BACKEND_CPU_KERNELS_LINES_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "rlx/backend/cpu/kernels/row_sum-inl.h"
#include "rlx/backend/cpu/kernels/window_geometry.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class S>
HWY_INLINE void CopyCells(const S* from, int64_t stride, Wide<S>* to, int64_t count) {
  const hn::ScalableTag<Wide<S>> d;
  if (stride == 1) {
    ForRow(d, size_t(count), [&](size_t i, size_t n) HWY_ATTR {
      StoreCount(LoadCount(d, from + i, n), d, to + i, n);
    });
  } else if (stride == 2) {
    for (int64_t i = 0; i < count; ++i) to[i] = Wide<S>(from[2 * i]);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = Wide<S>(from[stride * i]);
  }
}

// Stride 2: both phases at once. Short vectors, because lines are often short.
template <class T>
using PairTag = hn::CappedTag<T, 16 / sizeof(T)>;

template <class T>
HWY_INLINE void LoadPairs(const WindowGeometry& g, const T* from, T fill, T* to) {
  const PairTag<T> d;
  const auto lanes = int64_t(hn::Lanes(d));
  const PhaseRange &even = g.phases()[0], &odd = g.phases()[1];
  const int64_t length = g.phase(), end = std::min(even.end, odd.end);
  T* to_odd = to + length;
  int64_t i = 0;
  const auto one_by_one = [&](int64_t until) HWY_ATTR {
    for (; i < until; ++i) {
      const int64_t cell = 2 * i - g.before[2];
      to[i] = i >= even.begin && i < even.end ? from[cell] : fill;
      to_odd[i] = i >= odd.begin && i < odd.end ? from[cell + 1] : fill;
    }
  };
  one_by_one(std::min(std::max(even.begin, odd.begin), length));
  for (; i + lanes <= end; i += lanes) {
    hn::Vec<decltype(d)> a, b;
    hn::LoadInterleaved2(d, from + (2 * i - g.before[2]), a, b);
    hn::StoreU(a, d, to + i);
    hn::StoreU(b, d, to_odd + i);
  }
  one_by_one(length);
}

// One line of the tensor, or `fill` alone if `from` is null.
template <class S>
HWY_INLINE void LoadLine(const WindowGeometry& g, const S* from, Wide<S> fill, Wide<S>* to) {
  const int64_t length = g.phase();
  if (from == nullptr) {
    std::fill(to, to + g.line(), fill);
    return;
  }
  if constexpr (std::is_same_v<S, Wide<S>>) {
    if (g.stride[2] == 2) return LoadPairs(g, from, fill, to);
  }
  for (const PhaseRange& r : g.phases()) {
    for (int64_t i = 0; i < r.begin; ++i) to[i] = fill;
    CopyCells(from + r.first, g.stride[2], to + r.begin, r.end - r.begin);
    for (int64_t i = r.end; i < length; ++i) to[i] = fill;
    to += length;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#endif
