// Walking and summing rows: what softmax, the norms and their gradients share. Include after
// "hwy/foreach_target.h"; lives in rlx::cpu::HWY_NAMESPACE.
//
// Rows are contiguous, of storage type S; D is a tag of the accumulation type Wide<S>. A count
// below Lanes(d) means a tail: lanes beyond it are 0 when loaded and left alone when stored.

#if defined(RLX_BACKEND_CPU_KERNELS_ROW_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RLX_BACKEND_CPU_KERNELS_ROW_SUM_INL_H_
#undef RLX_BACKEND_CPU_KERNELS_ROW_SUM_INL_H_
#else
#define RLX_BACKEND_CPU_KERNELS_ROW_SUM_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "hwy/highway.h"
#include "rlx/backend/cpu/kernels/convert-inl.h"
#include "rlx/base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class S>
using Wide = std::conditional_t<std::is_same_v<S, double>, double, float>;

// f.operator()<S>() for the storage type S of a float dtype.
template <class F>
HWY_INLINE void WithFloatType(DType dtype, F f) {
  switch (dtype) {
    case DType::kF16:
      return f.template operator()<f16>();
    case DType::kBF16:
      return f.template operator()<bf16>();
    case DType::kF64:
      return f.template operator()<double>();
    default:
      return f.template operator()<float>();
  }
}

template <class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const double* from) {
  return hn::LoadU(d, from);
}
template <class D, class S>
HWY_INLINE hn::Vec<D> LoadWide(D d, const S* from) {
  return LoadF32(d, from);
}
template <class D>
HWY_INLINE void StoreWide(hn::Vec<D> v, D d, double* to) {
  hn::StoreU(v, d, to);
}
template <class D, class S>
HWY_INLINE void StoreWide(hn::Vec<D> v, D d, S* to) {
  StoreF32(v, d, to);
}

// The first `count` lanes; count is Lanes(d) or less.
template <class D, class S>
HWY_INLINE hn::Vec<D> LoadCount(D d, const S* from, size_t count) {
  if (HWY_LIKELY(count == hn::Lanes(d))) return LoadWide(d, from);
  if constexpr (sizeof(S) == sizeof(hn::TFromD<D>)) {
    return hn::MaskedLoad(hn::FirstN(d, count), d, from);
  } else {
    HWY_ALIGN S lanes[hn::MaxLanes(d)] = {};
    for (size_t i = 0; i < count; ++i) lanes[i] = from[i];
    return LoadWide(d, lanes);
  }
}

template <class D, class S>
HWY_INLINE void StoreCount(hn::Vec<D> v, D d, S* to, size_t count) {
  if (HWY_LIKELY(count == hn::Lanes(d))) return StoreWide(v, d, to);
  if constexpr (sizeof(S) == sizeof(hn::TFromD<D>)) {
    hn::BlendedStore(v, hn::FirstN(d, count), d, to);
  } else {
    HWY_ALIGN S lanes[hn::MaxLanes(d)];
    StoreWide(v, d, lanes);
    for (size_t i = 0; i < count; ++i) to[i] = lanes[i];
  }
}

// f(i, count) for the vectors of a row of n elements.
template <class D, class F>
HWY_INLINE void ForRow(D d, size_t n, F f) {
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) f(i, lanes);
  if (i < n) f(i, n - i);
}

// The same for every instruction set: element i goes to partial sum i mod 64, and partial sum p
// joins p + 32, then p + 16, ... down to one. So a sum is a function of the length and the type.
constexpr size_t kPartialSums = 64;

template <class D>
HWY_INLINE hn::TFromD<D> AddHalves(D d, hn::Vec<D> v) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(D()) > 1) {
    const hn::Half<D> half;
    return AddHalves(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
#endif
  (void)d;
  return hn::GetLane(v);
}

template <size_t kVectors, class D>
HWY_INLINE hn::TFromD<D> AddPartials(D d, hn::Vec<D>* sums) {
  for (size_t h = kVectors / 2; h > 0; h /= 2) {
    for (size_t v = 0; v < h; ++v) sums[v] = hn::Add(sums[v], sums[v + h]);
  }
  return AddHalves(d, sums[0]);
}

// The sum over a row of term(i, count), a vector; what it has beyond `count` is dropped.
template <class D, class Term>
HWY_INLINE hn::TFromD<D> SumRow(D d, size_t n, Term term) {
  constexpr size_t kLanes = hn::MaxLanes(D()), kVectors = kPartialSums / kLanes;
  hn::Vec<D> sums[kVectors];
  return [&]<size_t... v>(std::index_sequence<v...>) HWY_ATTR {
    ((sums[v] = hn::Zero(d)), ...);
    size_t i = 0;
    for (; i + kPartialSums <= n; i += kPartialSums) {
      ((sums[v] = hn::Add(sums[v], term(i + v * kLanes, kLanes))), ...);
    }
    const auto add_tail = [&](hn::Vec<D>& sum, size_t at) HWY_ATTR {
      if (at + kLanes <= n) {
        sum = hn::Add(sum, term(at, kLanes));
      } else if (at < n) {
        sum = hn::Add(sum, hn::IfThenElseZero(hn::FirstN(d, n - at), term(at, n - at)));
      }
    };
    (add_tail(sums[v], i + v * kLanes), ...);
    return AddPartials<kVectors>(d, sums);
  }
  (std::make_index_sequence<kVectors>());
}

// Two sums over the same row: terms(i, count, first, second) sets both vectors.
template <class D, class Terms>
HWY_INLINE void SumRow2(D d, size_t n, Terms terms, hn::TFromD<D>* first, hn::TFromD<D>* second) {
  constexpr size_t kLanes = hn::MaxLanes(D()), kVectors = kPartialSums / kLanes;
  hn::Vec<D> a[kVectors], b[kVectors];
  [&]<size_t... v>(std::index_sequence<v...>) HWY_ATTR {
    ((a[v] = b[v] = hn::Zero(d)), ...);
    const auto add = [&](hn::Vec<D>& sum_a, hn::Vec<D>& sum_b, size_t at) HWY_ATTR {
      hn::Vec<D> s, t;
      terms(at, kLanes, s, t);
      sum_a = hn::Add(sum_a, s);
      sum_b = hn::Add(sum_b, t);
    };
    const auto add_tail = [&](hn::Vec<D>& sum_a, hn::Vec<D>& sum_b, size_t at) HWY_ATTR {
      if (at + kLanes <= n) return add(sum_a, sum_b, at);
      if (at >= n) return;
      hn::Vec<D> s, t;
      terms(at, n - at, s, t);
      const auto mask = hn::FirstN(d, n - at);
      sum_a = hn::Add(sum_a, hn::IfThenElseZero(mask, s));
      sum_b = hn::Add(sum_b, hn::IfThenElseZero(mask, t));
    };
    size_t i = 0;
    for (; i + kPartialSums <= n; i += kPartialSums) (add(a[v], b[v], i + v * kLanes), ...);
    (add_tail(a[v], b[v], i + v * kLanes), ...);
    *first = AddPartials<kVectors>(d, a);
    *second = AddPartials<kVectors>(d, b);
  }
  (std::make_index_sequence<kVectors>());
}

// The largest element of a row; -inf if it has none. A NaN may or may not win.
template <class D, class S>
HWY_INLINE hn::TFromD<D> MaxRow(D d, const S* row, size_t n) {
  using T = hn::TFromD<D>;
  const auto lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
  const size_t lanes = hn::Lanes(d);
  auto m0 = lowest, m1 = lowest;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    m0 = hn::Max(m0, LoadWide(d, row + i));
    m1 = hn::Max(m1, LoadWide(d, row + i + lanes));
  }
  for (; i < n; i += lanes) {
    const size_t count = n - i < lanes ? n - i : lanes;
    const auto v = LoadCount(d, row + i, count);
    m0 = hn::Max(m0, hn::IfThenElse(hn::FirstN(d, count), v, lowest));
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(m0, m1)));
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#endif
