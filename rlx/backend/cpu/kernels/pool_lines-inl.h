// Padded planes for the pooling kernels. Include after "hwy/foreach_target.h"; lives in
// rlx::cpu::HWY_NAMESPACE.

#if defined(RLX_BACKEND_CPU_KERNELS_POOL_LINES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RLX_BACKEND_CPU_KERNELS_POOL_LINES_INL_H_
#undef RLX_BACKEND_CPU_KERNELS_POOL_LINES_INL_H_
#else
#define RLX_BACKEND_CPU_KERNELS_POOL_LINES_INL_H_
#endif

#include "rlx/backend/cpu/kernels/lines-inl.h"
#include "rlx/backend/cpu/kernels/pool_state.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// f(plane line or -1 where outside, padded line) for all padded lines of a plane.
template <class F>
HWY_INLINE void ForPaddedLines(const PoolState& s, F f) {
  const WindowGeometry& g = s.g;
  const int64_t outer = s.outer_cells(), middle = s.middle_cells();
  for (int64_t i = 0; i < outer; ++i) {
    const int64_t z = i - g.before[0];
    for (int64_t j = 0; j < middle; ++j) {
      const int64_t y = j - g.before[1];
      const bool inside = z >= 0 && z < g.in[0] && y >= 0 && y < g.in[1];
      f(inside ? z * g.in[1] + y : -1, i * middle + j);
    }
  }
}

template <class S>
HWY_INLINE void LoadPlane(const PoolState& s, const S* x, Wide<S> fill, Wide<S>* padded) {
  ForPaddedLines(s, [&](int64_t line, int64_t to) HWY_ATTR {
    LoadLine(s.g, line < 0 ? nullptr : x + line * s.g.in[2], fill, padded + to * s.g.line());
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#endif
