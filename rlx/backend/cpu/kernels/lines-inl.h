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
using WideOf = std::conditional_t<std::is_same_v<S, double>, double, float>;

template <class S>
HWY_INLINE void CopyCells(const S* from, int64_t stride, WideOf<S>* to, int64_t count) {
  const hn::ScalableTag<WideOf<S>> d;
  if (stride == 1) {
    ForRow(d, size_t(count), [&](size_t i, size_t n) HWY_ATTR {
      StoreCount(LoadCount(d, from + i, n), d, to + i, n);
    });
  } else if (stride == 2) {
    for (int64_t i = 0; i < count; ++i) to[i] = WideOf<S>(from[2 * i]);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = WideOf<S>(from[stride * i]);
  }
}

// One line of the tensor, or `fill` alone if `from` is null.
template <class S>
HWY_INLINE void LoadLine(const WindowGeometry& g, const S* from, WideOf<S> fill, WideOf<S>* to) {
  const int64_t length = g.phase();
  if (from == nullptr) {
    std::fill(to, to + g.line(), fill);
    return;
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
