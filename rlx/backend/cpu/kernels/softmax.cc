#include "rlx/ops/softmax.h"

#include <algorithm>

#include "rlx/base/checked.h"
#include "rlx/compile/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/softmax.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/math-inl.h"
#include "rlx/backend/cpu/kernels/row_sum-inl.h"

#ifndef RLX_CPU_SOFTMAX_TYPES_
#define RLX_CPU_SOFTMAX_TYPES_
namespace rlx::cpu {

// x seen as [outer, n, inner], the softmax running over n.
struct SoftmaxState {
  int64_t outer = 1, n = 1, inner = 1;
  int64_t per_chunk = 1;  // rows, or vectors of kColumns columns
  DType dtype = DType::kF32;
};

// Columns that one step of the column kernel takes: one vector of f32 at most.
inline constexpr int64_t kSoftmaxColumns = 16;

}  // namespace rlx::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

// `wide` holds n numbers where S is narrower; else the result itself holds the exponentials.
template <class S>
void SoftmaxRow(const S* x, S* y, size_t n, Wide<S>* wide) {
  const hn::ScalableTag<Wide<S>> d;
  const auto m = hn::Set(d, MaxRow(d, x, n));
  const auto e = [&] {
    if constexpr (sizeof(S) == sizeof(Wide<S>)) {
      return y;
    } else {
      return wide;
    }
  }();
  const auto total = SumRow(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto v = Exp(d, hn::Sub(LoadCount(d, x + i, count), m));
    StoreCount(v, d, e + i, count);
    return v;
  });
  const auto divisor = hn::Set(d, total);
  ForRow(d, n, [&](size_t i, size_t count) HWY_ATTR {
    StoreCount(hn::Div(LoadCount(d, e + i, count), divisor), d, y + i, count);
  });
}

template <class S>
void RowChunk(const SoftmaxState& s, const StepArgs& args, int64_t chunk) {
  const int64_t begin = chunk * s.per_chunk, end = std::min(begin + s.per_chunk, s.outer);
  for (int64_t row = begin; row < end; ++row) {
    SoftmaxRow(args.in<S>(0) + row * s.n, args.out<S>(0) + row * s.n, size_t(s.n),
               static_cast<Wide<S>*>(args.thread_scratch));
  }
}

// One vector of columns, each with the sum of SoftmaxRow: `partial` holds kPartialSums vectors,
// `wide` n vectors (if S is narrower).
template <class S, class D>
void SoftmaxColumns(D d, const S* x, S* y, int64_t n, int64_t inner, size_t count, Wide<S>* partial,
                    Wide<S>* wide) {
  using T = Wide<S>;
  const size_t lanes = hn::Lanes(d);
  auto m = hn::Set(d, -std::numeric_limits<T>::infinity());
  for (int64_t i = 0; i < n; ++i) m = hn::Max(m, LoadCount(d, x + i * inner, count));
  const auto used = std::min<size_t>(size_t(n), kPartialSums);
  for (size_t p = 0; p < kPartialSums; ++p) hn::Store(hn::Zero(d), d, partial + p * lanes);
  for (int64_t i = 0; i < n; ++i) {
    const auto v = Exp(d, hn::Sub(LoadCount(d, x + i * inner, count), m));
    if constexpr (sizeof(S) == sizeof(T)) {
      StoreCount(v, d, y + i * inner, count);
    } else {
      hn::Store(v, d, wide + size_t(i) * lanes);
    }
    T* sum = partial + (size_t(i) % kPartialSums) * lanes;
    hn::Store(hn::Add(hn::Load(d, sum), v), d, sum);
  }
  for (size_t h = kPartialSums / 2; h > 0; h /= 2) {
    for (size_t p = 0; p < h && p + h < used; ++p) {
      T* sum = partial + p * lanes;
      hn::Store(hn::Add(hn::Load(d, sum), hn::Load(d, sum + h * lanes)), d, sum);
    }
  }
  const auto total = hn::Load(d, partial);
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (sizeof(S) == sizeof(T)) {
      StoreCount(hn::Div(LoadCount(d, y + i * inner, count), total), d, y + i * inner, count);
    } else {
      StoreCount(hn::Div(hn::Load(d, wide + size_t(i) * lanes), total), d, y + i * inner, count);
    }
  }
}

template <class S>
void ColumnChunk(const SoftmaxState& s, const StepArgs& args, int64_t chunk) {
  using T = Wide<S>;
  const hn::ScalableTag<T> d;
  const int64_t groups = (s.inner + kSoftmaxColumns - 1) / kSoftmaxColumns;
  const auto lanes = int64_t(hn::Lanes(d));
  T* partial = static_cast<T*>(args.thread_scratch);
  T* wide = partial + int64_t(kPartialSums) * lanes;
  const int64_t end = std::min((chunk + 1) * s.per_chunk, s.outer * groups);
  for (int64_t unit = chunk * s.per_chunk; unit < end; ++unit) {
    const int64_t first = unit % groups * kSoftmaxColumns;
    const int64_t last = std::min(first + kSoftmaxColumns, s.inner);
    for (int64_t column = first; column < last; column += lanes) {
      const int64_t at = unit / groups * s.n * s.inner + column;
      SoftmaxColumns<S>(d, args.in<S>(0) + at, args.out<S>(0) + at, s.n, s.inner,
                        size_t(std::min(lanes, last - column)), partial, wide);
    }
  }
}

}  // namespace

void SoftmaxChunk(const SoftmaxState& s, const StepArgs& args, int64_t chunk) {
  const auto run = [&]<class S>() {
    if (s.inner == 1) {
      RowChunk<S>(s, args, chunk);
    } else {
      ColumnChunk<S>(s, args, chunk);
    }
  };
  WithFloatType(s.dtype, run);
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(SoftmaxChunk);

namespace {

constexpr int64_t kChunkElements = 16384;

SoftmaxState state_of(const KernelCall& call) {
  const Dims& dims = call.operands[0].dims;
  const int64_t axis = call.as<SoftmaxAttrs>().axis;
  SoftmaxState s;
  s.dtype = call.operands[0].dtype;
  for (int64_t a = 0; a < int64_t(dims.size()); ++a) {
    (a < axis ? s.outer : a == axis ? s.n : s.inner) *= dims[size_t(a)];
  }
  return s;
}

std::string_view fits_row(const KernelCall& call) {
  return state_of(call).inner == 1 ? "" : "the axis is not the last";
}

std::string_view fits_column(const KernelCall& call) {
  return state_of(call).inner == 1 ? "the axis is the last: softmax:row is faster" : "";
}

PreparedKernel prepare(const KernelCall& call) {
  SoftmaxState s = state_of(call);
  const int64_t elements = call.operands[0].num_elements();
  int64_t chunks = 0;
  int64_t wide_bytes = s.n * 4;
  if (s.inner == 1) {
    s.per_chunk = std::max<int64_t>(1, kChunkElements / std::max<int64_t>(s.n, 1));
    chunks = ceil_div(s.outer, s.per_chunk);
  } else {
    const int64_t group = kSoftmaxColumns * std::max<int64_t>(s.n, 1);
    s.per_chunk = std::max<int64_t>(1, kChunkElements / group);
    chunks = ceil_div(s.outer * ceil_div(s.inner, kSoftmaxColumns), s.per_chunk);
    wide_bytes = (64 + s.n) * 64;  // vectors of at most 64 bytes
  }
  PreparedKernel k = PreparedKernel::single(
      s, elements == 0 ? 0 : chunks,
      [](const void* state, const StepArgs& args, int64_t chunk) {
        HWY_DYNAMIC_DISPATCH(SoftmaxChunk)
        (*static_cast<const SoftmaxState*>(state), args, chunk);
      },
      double(elements) * (s.dtype == DType::kF64 ? 2.0 : 1.0));
  k.thread_scratch_bytes = wide_bytes;
  return k;
}

constexpr KernelEntry kEntries[] = {
    {.name = "softmax:row", .fits = fits_row, .prepare = prepare, .in_place = 1, .vector = true},
    {.name = "softmax:column",
     .fits = fits_column,
     .prepare = prepare,
     .in_place = 1,
     .vector = true},
};

}  // namespace

RLX_DEFINE_KERNELS(Softmax, Cpu) = {kEntries};

}  // namespace rlx::cpu
#endif  // HWY_ONCE
