// The rows of LayerNorm (centered) and RmsNorm, forward and backward. Include after
// "hwy/foreach_target.h"; lives in rlx::cpu::HWY_NAMESPACE.

#if defined(RLX_BACKEND_CPU_KERNELS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RLX_BACKEND_CPU_KERNELS_NORM_INL_H_
#undef RLX_BACKEND_CPU_KERNELS_NORM_INL_H_
#else
#define RLX_BACKEND_CPU_KERNELS_NORM_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "rlx/backend/cpu/kernels/norm.h"
#include "rlx/backend/cpu/kernels/partial_rows.h"
#include "rlx/backend/cpu/kernels/row_sum-inl.h"
#include "rlx/base/checked.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

template <class T>
struct Moments {
  T mean = 0, inverse = 0;
};

// x - mean, or x itself.
template <bool kCentered, class V>
HWY_INLINE V Center(V x, V mean) {
  if constexpr (kCentered) x = hn::Sub(x, mean);
  return x;
}

// Two passes, so that a mean far from 0 costs no digits of the variance.
template <bool kCentered, class D, class S>
HWY_INLINE Moments<hn::TFromD<D>> MomentsOf(D d, const S* x, size_t n, double eps) {
  using T = hn::TFromD<D>;
  Moments<T> m;
  if constexpr (kCentered) {
    m.mean =
        SumRow(d, n, [&](size_t i, size_t count) HWY_ATTR { return LoadCount(d, x + i, count); }) /
        T(n);
  }
  const auto mean = hn::Set(d, m.mean);
  const T squares = SumRow(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto c = Center<kCentered>(LoadCount(d, x + i, count), mean);
    return hn::Mul(c, c);
  });
  m.inverse = T(1) / std::sqrt(squares / T(n) + T(eps));
  return m;
}

template <bool kCentered, class S>
void ForwardRow(const NormState& s, const S* x, const S* gamma, const S* beta, S* y) {
  const hn::ScalableTag<Wide<S>> d;
  const auto m = MomentsOf<kCentered>(d, x, size_t(s.n), s.eps);
  const auto mean = hn::Set(d, m.mean), inverse = hn::Set(d, m.inverse);
  ForRow(d, size_t(s.n), [&](size_t i, size_t count) HWY_ATTR {
    auto v = hn::Mul(Center<kCentered>(LoadCount(d, x + i, count), mean), inverse);
    if (gamma) v = hn::Mul(v, LoadCount(d, gamma + i, count));
    if (beta) v = hn::Add(v, LoadCount(d, beta + i, count));
    StoreCount(v, d, y + i, count);
  });
}

template <bool kCentered, class S>
void ForwardRows(const NormState& s, const StepArgs& args, int64_t chunk) {
  const S* gamma = s.gamma ? args.in<S>(1) : nullptr;
  const S* beta = s.beta ? args.in<S>(2) : nullptr;
  const int64_t begin = chunk * s.per_chunk, end = std::min(begin + s.per_chunk, s.all_rows());
  for (int64_t row = begin; row < end; ++row) {
    const int64_t affine = row / s.rows * s.n;
    ForwardRow<kCentered>(s, args.in<S>(0) + row * s.n, gamma ? gamma + affine : nullptr,
                          beta ? beta + affine : nullptr, args.out<S>(0) + row * s.n);
  }
}

template <bool kCentered, class D, class S>
HWY_INLINE void WriteDx(D d, const NormState& s, Moments<hn::TFromD<D>> m, const S* x,
                        const S* gamma, const S* dy, S* dx) {
  using T = hn::TFromD<D>;
  const auto n = size_t(s.n);
  const auto mean = hn::Set(d, m.mean), inverse = hn::Set(d, m.inverse);
  const auto load = [&](size_t i, size_t count, hn::Vec<D>& g, hn::Vec<D>& x_hat) HWY_ATTR {
    g = LoadCount(d, dy + i, count);
    if (gamma) g = hn::Mul(g, LoadCount(d, gamma + i, count));
    x_hat = hn::Mul(Center<kCentered>(LoadCount(d, x + i, count), mean), inverse);
  };
  T sum_g = 0, sum_gx;
  if constexpr (kCentered) {
    SumRow2(
        d, n,
        [&](size_t i, size_t count, hn::Vec<D>& first, hn::Vec<D>& second) HWY_ATTR {
          hn::Vec<D> x_hat;
          load(i, count, first, x_hat);
          second = hn::Mul(first, x_hat);
        },
        &sum_g, &sum_gx);
  } else {
    sum_gx = SumRow(d, n, [&](size_t i, size_t count) HWY_ATTR {
      hn::Vec<D> g, x_hat;
      load(i, count, g, x_hat);
      return hn::Mul(g, x_hat);
    });
  }
  const auto mean_g = hn::Set(d, sum_g / T(n)), mean_gx = hn::Set(d, sum_gx / T(n));
  ForRow(d, n, [&](size_t i, size_t count) HWY_ATTR {
    hn::Vec<D> g, x_hat;
    load(i, count, g, x_hat);
    const auto across = hn::Sub(Center<kCentered>(g, mean_g), hn::Mul(x_hat, mean_gx));
    StoreCount(hn::Mul(inverse, across), d, dx + i, count);
  });
}

// Adds a row's terms to its partial sums of dgamma and dbeta, of which one may be null.
template <bool kCentered, class D, class S>
HWY_INLINE void AddTerms(D d, const NormState& s, Moments<hn::TFromD<D>> m, const S* x, const S* dy,
                         hn::TFromD<D>* dgamma, hn::TFromD<D>* dbeta) {
  const auto mean = hn::Set(d, m.mean), inverse = hn::Set(d, m.inverse);
  ForRow(d, size_t(s.n), [&](size_t i, size_t count) HWY_ATTR {
    const auto v = LoadCount(d, dy + i, count);
    if (dgamma) {
      const auto x_hat = hn::Mul(Center<kCentered>(LoadCount(d, x + i, count), mean), inverse);
      const auto sum = hn::Add(LoadCount(d, dgamma + i, count), hn::Mul(v, x_hat));
      StoreCount(sum, d, dgamma + i, count);
    }
    if (dbeta) StoreCount(hn::Add(LoadCount(d, dbeta + i, count), v), d, dbeta + i, count);
  });
}

// The rows of one partial sum of one group.
template <bool kCentered, class S>
void BackwardRows(const NormState& s, const StepArgs& args, int64_t chunk) {
  using T = Wide<S>;
  const hn::ScalableTag<T> d;
  const int64_t group = chunk / s.partials;
  const S* gamma = s.gamma ? args.in<S>(1) + group * s.n : nullptr;
  const S* dy = args.in<S>(s.gamma ? 2 : 1);
  T *dgamma = nullptr, *dbeta = nullptr;
  if (s.sums()) {  // else there is no scratch
    dgamma = static_cast<T*>(args.scratch) + chunk * 2 * s.n;
    dbeta = dgamma + s.n;
    std::fill(dgamma, dgamma + 2 * s.n, T(0));
  }
  for (int64_t row = chunk % s.partials; row < s.rows; row += kPartialRows) {
    const int64_t at = (group * s.rows + row) * s.n;
    const S *x_row = args.in<S>(0) + at, *dy_row = dy + at;
    Moments<T> m;
    if (s.dx || s.dgamma) m = MomentsOf<kCentered>(d, x_row, size_t(s.n), s.eps);
    if (s.sums()) {
      AddTerms<kCentered>(d, s, m, x_row, dy_row, s.dgamma ? dgamma : nullptr,
                          s.dbeta ? dbeta : nullptr);
    }
    if (s.dx) WriteDx<kCentered>(d, s, m, x_row, gamma, dy_row, args.out<S>(0) + at);
  }
}

// Adds the partial sums of some columns of a group as SumRow does.
template <class S>
void AddPartialRows(const NormState& s, const StepArgs& args, int64_t chunk) {
  using T = Wide<S>;
  const int64_t blocks = ceil_div(s.n, kPartialColumns), group = chunk / blocks;
  const int64_t begin = chunk % blocks * kPartialColumns;
  const int64_t end = std::min(begin + kPartialColumns, s.n), stride = 2 * s.n;
  for (int64_t which = 0; which < 2; ++which) {
    if (!(which == 0 ? s.dgamma : s.dbeta)) continue;
    S* out = args.out<S>(size_t(1 + which)) + group * s.n;
    // Without rows there is no scratch.
    T* base = s.partials == 0
                  ? nullptr
                  : static_cast<T*>(args.scratch) + group * s.partials * stride + which * s.n;
    add_partial_rows(base, s.partials, stride, begin, end, out);
  }
}

template <bool kCentered>
void NormChunk(const NormState& s, const StepArgs& args, int64_t chunk, NormStep step) {
  const auto run = [&]<class S>() {
    if (step == NormStep::kForward) return ForwardRows<kCentered, S>(s, args, chunk);
    if (step == NormStep::kBackward) return BackwardRows<kCentered, S>(s, args, chunk);
    AddPartialRows<S>(s, args, chunk);
  };
  WithFloatType(s.dtype, run);
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#endif
