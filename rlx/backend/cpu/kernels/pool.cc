#include <algorithm>
#include <limits>

#include "rlx/backend/cpu/kernels/pool_state.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/pool.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/pool_lines-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

// A NaN wins and stays.
struct MaxStep {
  template <class V>
  HWY_INLINE V operator()(V m, V v) const {
    return hn::IfThenElse(hn::Or(hn::Gt(v, m), hn::IsNaN(v)), v, m);
  }
};
struct MinStep {
  template <class V>
  HWY_INLINE V operator()(V m, V v) const {
    return hn::IfThenElse(hn::Or(hn::Lt(v, m), hn::IsNaN(v)), v, m);
  }
};
struct AddStep {
  template <class V>
  HWY_INLINE V operator()(V sum, V v) const {
    return hn::Add(sum, v);
  }
};
struct MulStep {
  template <class V>
  HWY_INLINE V operator()(V product, V v) const {
    return hn::Mul(product, v);
  }
};

// finish(result, first output, count) for the vectors of every output line of a plane.
template <class T, class Step, class Finish>
HWY_INLINE void ReduceWindows(const PoolState& s, const T* padded, T identity, Step step,
                              Finish finish) {
  const hn::ScalableTag<T> d;
  const auto lanes = int64_t(hn::Lanes(d));
  const WindowGeometry& g = s.g;
  for (int64_t z = 0; z < g.out[0]; ++z) {
    for (int64_t y = 0; y < g.out[1]; ++y) {
      const T* window = padded + s.window_start(z, y);
      for (int64_t x = 0; x < g.out[2]; x += lanes) {
        auto v = hn::Set(d, identity);
        for (const int64_t tap : s.taps) v = step(v, hn::LoadU(d, window + tap + x));
        finish(v, z, y, x, size_t(std::min(lanes, g.out[2] - x)));
      }
    }
  }
}

template <class S, class Step>
void PoolPlane(const PoolState& s, const S* x, S* out, Wide<S> identity, Step step,
               Wide<S>* padded) {
  const hn::ScalableTag<Wide<S>> d;
  using V = hn::Vec<decltype(d)>;
  const WindowGeometry& g = s.g;
  LoadPlane(s, x, identity, padded);
  ReduceWindows(s, padded, identity, step,
                [&](V v, int64_t z, int64_t y, int64_t at, size_t count) HWY_ATTR {
                  StoreCount(v, d, out + (z * g.out[1] + y) * g.out[2] + at, count);
                });
}

template <class S>
void MeanPlane(const PoolState& s, const S* x, S* out, Wide<S>* padded) {
  using T = Wide<S>;
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const WindowGeometry& g = s.g;
  const bool inside = !s.counts[0].empty();
  LoadPlane(s, x, T(0), padded);
  ReduceWindows(s, padded, T(0), AddStep(),
                [&](V v, int64_t z, int64_t y, int64_t at, size_t count) HWY_ATTR {
                  auto divisor = hn::Set(d, T(g.taps()));
                  if (inside) {
                    HWY_ALIGN T cells[hn::MaxLanes(d)] = {};
                    const double line = s.counts[0][size_t(z)] * s.counts[1][size_t(y)];
                    for (size_t i = 0; i < count; ++i) {
                      cells[i] = T(std::max(1.0, line * s.counts[2][size_t(at) + i]));
                    }
                    divisor = hn::Load(d, cells);
                  }
                  StoreCount(hn::Div(v, divisor), d, out + (z * g.out[1] + y) * g.out[2] + at,
                             count);
                });
}

template <class S>
void Planes(const PoolState& s, const StepArgs& args, int64_t chunk) {
  using T = Wide<S>;
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  T* padded = static_cast<T*>(args.thread_scratch);
  const int64_t end = std::min((chunk + 1) * s.planes_per_chunk, s.planes);
  for (int64_t plane = chunk * s.planes_per_chunk; plane < end; ++plane) {
    const S* x = args.in<S>(0) + plane * s.g.in_area();
    S* y = args.out<S>(0) + plane * s.g.out_area();
    switch (s.kind) {
      case PoolKind::kMax:
        PoolPlane(s, x, y, -kInfinity, MaxStep(), padded);
        break;
      case PoolKind::kMin:
        PoolPlane(s, x, y, kInfinity, MinStep(), padded);
        break;
      case PoolKind::kSum:
        PoolPlane(s, x, y, T(0), AddStep(), padded);
        break;
      case PoolKind::kProd:
        PoolPlane(s, x, y, T(1), MulStep(), padded);
        break;
      case PoolKind::kMean:
        MeanPlane(s, x, y, padded);
        break;
    }
  }
}

}  // namespace

void PoolChunk(const PoolState& s, const StepArgs& args, int64_t chunk) {
  WithFloatType(s.dtype, [&]<class S>() { Planes<S>(s, args, chunk); });
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(PoolChunk);

PoolState::PoolState(const TensorDesc& x, const TensorDesc& y, const Window& w)
    : g(x.dims, y.dims, w), planes(x.dims[0] * x.dims[1]), dtype(x.dtype) {
  for (int64_t kz = 0; kz < g.kernel[0]; ++kz) {
    for (int64_t ky = 0; ky < g.kernel[1]; ++ky) {
      for (int64_t kx = 0; kx < g.kernel[2]; ++kx) {
        taps.push_back((kz * middle_cells() + ky) * g.line() + g.tap_offset(kx));
      }
    }
  }
  constexpr int64_t kChunkCells = 16384;
  planes_per_chunk = std::max<int64_t>(1, kChunkCells / std::max<int64_t>(cells(), 1));
}

int64_t PoolState::scratch_bytes(int64_t buffers) const {
  const int64_t lines = checked_mul(outer_cells(), middle_cells());
  const int64_t elements = checked_add(checked_mul(lines, g.line()), 2 * kLineSlack);
  return checked_mul(checked_mul(elements, dtype == DType::kF64 ? 8 : 4), buffers);
}

double PoolState::nanoseconds(double ns_per_cell) const {
  return double(planes) * (50 + double(cells()) * ns_per_cell);
}

namespace {

// How many cells of the tensor each window covers along an axis.
std::vector<double> covered_cells(const WindowGeometry& g, int axis) {
  std::vector<double> counts;
  for (int64_t i = 0; i < g.out[axis]; ++i) {
    const int64_t first = i * g.stride[axis] - g.before[axis];
    const int64_t end = std::min(first + g.kernel[axis], g.in[axis]);
    counts.push_back(double(std::max<int64_t>(end - std::max<int64_t>(first, 0), 0)));
  }
  return counts;
}

PreparedKernel prepare(const KernelCall& call) {
  const auto& a = call.as<PoolAttrs>();
  PoolState s(call.operands[0], call.results[0], pool_window(a));
  s.kind = a.kind;
  if (a.kind == PoolKind::kMean && !a.count_include_pad) {
    for (int axis = 0; axis < 3; ++axis) s.counts[axis] = covered_cells(s.g, axis);
  }
  const int64_t chunks = s.chunks(), bytes = s.scratch_bytes(1);
  const double ns = s.nanoseconds(1);
  PreparedKernel k = PreparedKernel::single(
      std::move(s), chunks,
      [](const void* state, const StepArgs& args, int64_t chunk) {
        HWY_DYNAMIC_DISPATCH(PoolChunk)(*static_cast<const PoolState*>(state), args, chunk);
      },
      ns);
  k.thread_scratch_bytes = bytes;
  return k;
}

constexpr KernelEntry kEntries[] = {
    {.name = "pool:lines",
     .fits = [](const KernelCall&) -> std::string_view { return {}; },
     .prepare = prepare,
     .vector = true}};

}  // namespace

RLX_DEFINE_KERNELS(Pool, Cpu) = {kEntries};

}  // namespace rlx::cpu
#endif  // HWY_ONCE
