// MaxPoolSelect and MaxPool2dBackward: both find the first largest cell of every window.
#include <algorithm>
#include <limits>

#include "rlx/backend/cpu/kernels/pool_state.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/pool_max.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/pool_lines-inl.h"

#ifndef RLX_CPU_POOL_MAX_TYPES_
#define RLX_CPU_POOL_MAX_TYPES_
namespace rlx::cpu {

// The first tap of a window that lies in the tensor, or -1.
int64_t first_tap_inside(const WindowGeometry& g, int64_t z, int64_t y, int64_t x);

}  // namespace rlx::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

// The tap of the first largest cell for one vector of windows, as a number; -1 without a cell.
template <class D, class T>
HWY_INLINE hn::Vec<D> FindFirst(D d, const PoolState& s, const T* window, int64_t z, int64_t y,
                                int64_t x, size_t count) {
  // Padding is -inf and never larger than what was seen, so only windows without anything above
  // -inf stay at -1.
  const auto none = hn::Set(d, T(-1));
  auto largest = hn::Set(d, -std::numeric_limits<T>::infinity()), tap = none;
  for (size_t t = 0; t < s.taps.size(); ++t) {
    const auto v = hn::LoadU(d, window + s.taps[t] + x);
    const auto first_nan = hn::AndNot(hn::IsNaN(largest), hn::IsNaN(v));
    const auto take = hn::Or(hn::Gt(v, largest), first_nan);
    largest = hn::IfThenElse(take, v, largest);
    tap = hn::IfThenElse(take, hn::Set(d, T(t)), tap);
  }
  const auto unset = hn::And(hn::Eq(tap, none), hn::FirstN(d, count));
  if (HWY_LIKELY(hn::AllFalse(d, unset))) return tap;
  HWY_ALIGN T lanes[hn::MaxLanes(d)];
  hn::Store(tap, d, lanes);
  for (size_t i = 0; i < count; ++i) {
    if (lanes[i] < 0) lanes[i] = T(first_tap_inside(s.g, z, y, x + int64_t(i)));
  }
  return hn::Load(d, lanes);
}

// f(taps, padded offset of the windows, place in the result, count) for all windows of a plane.
template <class T, class F>
HWY_INLINE void ForWindows(const PoolState& s, const T* padded, F f) {
  const hn::ScalableTag<T> d;
  const auto lanes = int64_t(hn::Lanes(d));
  const WindowGeometry& g = s.g;
  for (int64_t z = 0; z < g.out[0]; ++z) {
    for (int64_t y = 0; y < g.out[1]; ++y) {
      const int64_t start = s.window_start(z, y);
      for (int64_t x = 0; x < g.out[2]; x += lanes) {
        const auto count = size_t(std::min(lanes, g.out[2] - x));
        f(FindFirst(d, s, padded + start, z, y, x, count), start + x,
          (z * g.out[1] + y) * g.out[2] + x, count);
      }
    }
  }
}

template <class S>
void SelectPlane(const PoolState& s, const S* x, const S* values, S* y, Wide<S>* padded) {
  using T = Wide<S>;
  const hn::ScalableTag<T> d;
  T* padded_values = padded + s.buffer_elements();
  LoadPlane(s, x, -std::numeric_limits<T>::infinity(), padded);
  LoadPlane(s, values, T(0), padded_values);
  ForWindows(s, padded, [&](auto taps, int64_t from, int64_t to, size_t count) HWY_ATTR {
    auto v = hn::Zero(d);
    for (size_t t = 0; t < s.taps.size(); ++t) {
      const auto hit = hn::Eq(taps, hn::Set(d, T(t)));
      v = hn::IfThenElse(hit, hn::LoadU(d, padded_values + s.taps[t] + from), v);
    }
    StoreCount(v, d, y + to, count);
  });
}

template <class S>
HWY_INLINE void StorePairs(const WindowGeometry& g, const Wide<S>* from, S* to) {
  using T = Wide<S>;
  const PairTag<T> d;
  const auto lanes = int64_t(hn::Lanes(d));
  const PhaseRange &even = g.phases()[0], &odd = g.phases()[1];
  const T* from_odd = from + g.phase();
  int64_t i = std::min(even.begin, odd.begin);
  const auto one_by_one = [&](int64_t until) HWY_ATTR {
    for (; i < until; ++i) {
      const int64_t cell = 2 * i - g.before[2];
      if (i >= even.begin && i < even.end) to[cell] = S(from[i]);
      if (i >= odd.begin && i < odd.end) to[cell + 1] = S(from_odd[i]);
    }
  };
  one_by_one(std::max(even.begin, odd.begin));
  if constexpr (std::is_same_v<S, T>) {
    for (; i + lanes <= std::min(even.end, odd.end); i += lanes) {
      hn::StoreInterleaved2(hn::LoadU(d, from + i), hn::LoadU(d, from_odd + i), d,
                            to + (2 * i - g.before[2]));
    }
  }
  one_by_one(std::max(even.end, odd.end));
}

// Writes a padded line back to the tensor; cells that it does not hold are 0.
template <class S>
HWY_INLINE void StoreLine(const WindowGeometry& g, const Wide<S>* from, S* to) {
  using T = Wide<S>;
  const hn::ScalableTag<T> d;
  const int64_t held = std::clamp<int64_t>(g.cells(2, g.out[2]) - g.before[2], 0, g.in[2]);
  if (g.stride[2] == 1) {
    ForRow(d, size_t(held), [&](size_t i, size_t n) HWY_ATTR {
      StoreCount(LoadCount(d, from + g.before[2] + i, n), d, to + i, n);
    });
  } else if (sizeof(S) == sizeof(T) && g.stride[2] == 2) {
    StorePairs(g, from, to);
  } else {
    for (const PhaseRange& r : g.phases()) {
      for (int64_t i = r.begin; i < r.end; ++i) {
        to[r.first + (i - r.begin) * g.stride[2]] = S(from[i]);
      }
      from += g.phase();
    }
  }
  for (int64_t i = held; i < g.in[2]; ++i) to[i] = S(T(0));
}

template <class S>
void BackwardPlane(const PoolState& s, const S* x, const S* dy, S* dx, Wide<S>* padded) {
  using T = Wide<S>;
  const hn::ScalableTag<T> d;
  T* sums = padded + s.buffer_elements();
  LoadPlane(s, x, -std::numeric_limits<T>::infinity(), padded);
  std::fill(sums, sums + s.buffer_elements(), T(0));
  ForWindows(s, padded, [&](auto taps, int64_t to, int64_t from, size_t count) HWY_ATTR {
    const auto g = LoadCount(d, dy + from, count);
    for (size_t t = 0; t < s.taps.size(); ++t) {
      const auto hit = hn::Eq(taps, hn::Set(d, T(t)));
      T* cell = sums + s.taps[t] + to;
      hn::StoreU(hn::Add(hn::LoadU(d, cell), hn::IfThenElseZero(hit, g)), d, cell);
    }
  });
  const bool all_lines =
      s.outer_cells() >= s.g.in[0] + s.g.before[0] && s.middle_cells() >= s.g.in[1] + s.g.before[1];
  if (!all_lines) std::fill(dx, dx + s.g.in_area(), S(T(0)));
  ForPaddedLines(s, [&](int64_t line, int64_t from) HWY_ATTR {
    if (line >= 0) StoreLine(s.g, sums + from * s.g.line(), dx + line * s.g.in[2]);
  });
}

template <class S>
void Planes(const PoolState& s, const StepArgs& args, int64_t chunk, bool backward) {
  auto* padded = static_cast<Wide<S>*>(args.thread_scratch);
  const int64_t in = s.g.in_area(), out = s.g.out_area();
  const int64_t end = std::min((chunk + 1) * s.planes_per_chunk, s.planes);
  for (int64_t plane = chunk * s.planes_per_chunk; plane < end; ++plane) {
    const S* x = args.in<S>(0) + plane * in;
    if (backward) {
      BackwardPlane(s, x, args.in<S>(1) + plane * out, args.out<S>(0) + plane * in, padded);
    } else {
      SelectPlane(s, x, args.in<S>(1) + plane * in, args.out<S>(0) + plane * out, padded);
    }
  }
}

}  // namespace

void PoolMaxChunk(const PoolState& s, const StepArgs& args, int64_t chunk, bool backward) {
  WithFloatType(s.dtype, [&]<class S>() { Planes<S>(s, args, chunk, backward); });
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(PoolMaxChunk);

int64_t first_tap_inside(const WindowGeometry& g, int64_t z, int64_t y, int64_t x) {
  const int64_t out[3] = {z, y, x};
  int64_t tap = 0;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t start = out[axis] * g.stride[axis] - g.before[axis];
    const int64_t k = std::max<int64_t>(-start, 0);
    if (k >= g.kernel[axis] || start + k >= g.in[axis]) return -1;
    tap = tap * g.kernel[axis] + k;
  }
  return tap;
}

namespace {

template <bool kBackward>
PreparedKernel prepare(const KernelCall& call) {
  const TensorDesc& y = kBackward ? call.operands[1] : call.results[0];
  PoolState s(call.operands[0], y, pool_window(call.as<MaxPoolAttrs>()));
  const int64_t chunks = s.chunks(), bytes = s.scratch_bytes(2);
  const double ns = s.nanoseconds(2.5);
  PreparedKernel k = PreparedKernel::single(
      std::move(s), chunks,
      [](const void* state, const StepArgs& args, int64_t chunk) {
        HWY_DYNAMIC_DISPATCH(PoolMaxChunk)
        (*static_cast<const PoolState*>(state), args, chunk, kBackward);
      },
      ns);
  k.thread_scratch_bytes = bytes;
  return k;
}

std::string_view fits(const KernelCall&) { return {}; }

constexpr KernelEntry kSelect[] = {
    {.name = "max_pool_select:lines", .fits = fits, .prepare = prepare<false>, .vector = true}};
constexpr KernelEntry kBackward[] = {
    {.name = "max_pool_backward:lines", .fits = fits, .prepare = prepare<true>, .vector = true}};

}  // namespace

RLX_DEFINE_KERNELS(MaxPoolSelect, Cpu) = {kSelect};
RLX_DEFINE_KERNELS(MaxPool2dBackward, Cpu) = {kBackward};

}  // namespace rlx::cpu
#endif  // HWY_ONCE
