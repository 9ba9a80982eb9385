#include "rlx/ops/rms_norm.h"

#include <algorithm>
#include <cmath>

#include "rlx/backend/cpu/kernels/partial_rows.h"
#include "rlx/base/checked.h"
#include "rlx/compile/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/rms_norm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/row_sum-inl.h"

#ifndef RLX_CPU_RMS_NORM_TYPES_
#define RLX_CPU_RMS_NORM_TYPES_
namespace rlx::cpu {

struct RmsNormState {
  int64_t groups = 1, rows = 1, n = 1;  // rows of a group share gamma and beta
  int64_t per_chunk = 1;                // rows of a forward chunk, through all groups
  int64_t partials = 0;                 // backward: row r of a group adds to partial sum r mod 64
  double eps = 0;
  DType dtype = DType::kF32;
  bool gamma = false, beta = false;                // operands that are there
  bool dx = false, dgamma = false, dbeta = false;  // results that are read
  bool sums() const { return dgamma || dbeta; }
  int64_t all_rows() const { return groups * rows; }
};

}  // namespace rlx::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

// 1 / sqrt(mean of squares + eps).
template <class D, class S>
HWY_INLINE hn::TFromD<D> InverseOf(D d, const S* x, size_t n, double eps) {
  using T = hn::TFromD<D>;
  const T squares = SumRow(d, n, [&](size_t i, size_t count) HWY_ATTR {
    const auto v = LoadCount(d, x + i, count);
    return hn::Mul(v, v);
  });
  return T(1) / std::sqrt(squares / T(n) + T(eps));
}

template <class S>
void ForwardRow(const RmsNormState& s, const S* x, const S* gamma, const S* beta, S* y) {
  const hn::ScalableTag<Wide<S>> d;
  const auto inverse = hn::Set(d, InverseOf(d, x, size_t(s.n), s.eps));
  ForRow(d, size_t(s.n), [&](size_t i, size_t count) HWY_ATTR {
    auto v = hn::Mul(LoadCount(d, x + i, count), inverse);
    if (gamma) v = hn::Mul(v, LoadCount(d, gamma + i, count));
    if (beta) v = hn::Add(v, LoadCount(d, beta + i, count));
    StoreCount(v, d, y + i, count);
  });
}

template <class S>
void ForwardRows(const RmsNormState& s, const StepArgs& args, int64_t chunk) {
  const S* gamma = s.gamma ? args.in<S>(1) : nullptr;
  const S* beta = s.beta ? args.in<S>(2) : nullptr;
  const int64_t begin = chunk * s.per_chunk, end = std::min(begin + s.per_chunk, s.all_rows());
  for (int64_t row = begin; row < end; ++row) {
    const int64_t affine = row / s.rows * s.n;
    ForwardRow(s, args.in<S>(0) + row * s.n, gamma ? gamma + affine : nullptr,
               beta ? beta + affine : nullptr, args.out<S>(0) + row * s.n);
  }
}

template <class D, class S>
HWY_INLINE void WriteDx(D d, const RmsNormState& s, hn::TFromD<D> r, const S* x, const S* gamma,
                        const S* dy, S* dx) {
  using T = hn::TFromD<D>;
  const auto n = size_t(s.n);
  const auto inverse = hn::Set(d, r);
  const auto load = [&](size_t i, size_t count, hn::Vec<D>& g, hn::Vec<D>& x_hat) HWY_ATTR {
    g = LoadCount(d, dy + i, count);
    if (gamma) g = hn::Mul(g, LoadCount(d, gamma + i, count));
    x_hat = hn::Mul(LoadCount(d, x + i, count), inverse);
  };
  const T sum_gx = SumRow(d, n, [&](size_t i, size_t count) HWY_ATTR {
    hn::Vec<D> g, x_hat;
    load(i, count, g, x_hat);
    return hn::Mul(g, x_hat);
  });
  const auto mean_gx = hn::Set(d, sum_gx / T(n));
  ForRow(d, n, [&](size_t i, size_t count) HWY_ATTR {
    hn::Vec<D> g, x_hat;
    load(i, count, g, x_hat);
    const auto across = hn::Sub(g, hn::Mul(x_hat, mean_gx));
    StoreCount(hn::Mul(inverse, across), d, dx + i, count);
  });
}

// Adds a row's terms to its partial sums of dgamma and dbeta, of which one may be null.
template <class D, class S>
HWY_INLINE void AddTerms(D d, const RmsNormState& s, hn::TFromD<D> r, const S* x, const S* dy,
                         hn::TFromD<D>* dgamma, hn::TFromD<D>* dbeta) {
  const auto inverse = hn::Set(d, r);
  ForRow(d, size_t(s.n), [&](size_t i, size_t count) HWY_ATTR {
    const auto v = LoadCount(d, dy + i, count);
    if (dgamma) {
      const auto x_hat = hn::Mul(LoadCount(d, x + i, count), inverse);
      const auto sum = hn::Add(LoadCount(d, dgamma + i, count), hn::Mul(v, x_hat));
      StoreCount(sum, d, dgamma + i, count);
    }
    if (dbeta) StoreCount(hn::Add(LoadCount(d, dbeta + i, count), v), d, dbeta + i, count);
  });
}

// The rows of one partial sum of one group.
template <class S>
void BackwardRows(const RmsNormState& s, const StepArgs& args, int64_t chunk) {
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
    const T r = s.dx || s.dgamma ? InverseOf(d, x_row, size_t(s.n), s.eps) : T(0);
    if (s.sums()) {
      AddTerms(d, s, r, x_row, dy_row, s.dgamma ? dgamma : nullptr, s.dbeta ? dbeta : nullptr);
    }
    if (s.dx) WriteDx(d, s, r, x_row, gamma, dy_row, args.out<S>(0) + at);
  }
}

// Adds the partial sums of some columns of a group as SumRow does.
template <class S>
void AddPartialRows(const RmsNormState& s, const StepArgs& args, int64_t chunk) {
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

}  // namespace

void RmsNormChunk(const RmsNormState& s, const StepArgs& args, int64_t chunk, int step) {
  const auto run = [&]<class S>() {
    if (step == 0) return ForwardRows<S>(s, args, chunk);
    if (step == 1) return BackwardRows<S>(s, args, chunk);
    AddPartialRows<S>(s, args, chunk);
  };
  WithFloatType(s.dtype, run);
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(RmsNormChunk);

namespace {

constexpr int64_t kChunkElements = 16384;

template <int kStep>
void run_step(const void* state, const StepArgs& args, int64_t chunk) {
  HWY_DYNAMIC_DISPATCH(RmsNormChunk)
  (*static_cast<const RmsNormState*>(state), args, chunk, kStep);
}

RmsNormState state_of(const KernelCall& call) {
  const TensorDesc& x = call.operands[0];
  const auto& a = call.as<RmsNormAttrs>();
  RmsNormState s;
  s.dtype = x.dtype;
  s.eps = a.eps;
  for (int64_t axis = 0; axis < int64_t(x.dims.size()); ++axis) {
    (axis < a.batch_axes ? s.groups : axis < a.axis ? s.rows : s.n) *= x.dims[size_t(axis)];
  }
  return s;
}

PreparedKernel prepare_forward(const KernelCall& call) {
  RmsNormState s = state_of(call);
  s.gamma = call.operands.size() > 1;
  s.beta = call.operands.size() > 2;
  s.per_chunk = std::max<int64_t>(1, kChunkElements / std::max<int64_t>(s.n, 1));
  const int64_t chunks = s.n == 0 ? 0 : ceil_div(s.all_rows(), s.per_chunk);
  return PreparedKernel::single(s, chunks, run_step<0>,
                                double(s.all_rows()) * (30 + 0.4 * double(s.n)));
}

// Phase 1: a chunk has the rows r, r + 64, ... of a group: their partial sums and dx. Phase 2: the
// sum of the partial sums, by blocks of columns.
PreparedKernel prepare_backward(const KernelCall& call) {
  RmsNormState s = state_of(call);
  s.gamma = call.operands.size() > 2;
  s.dx = call.used(0);
  s.dgamma = call.used(1);
  s.dbeta = call.used(2);
  s.partials = s.n == 0 ? 0 : std::min(s.rows, kPartialRows);
  PreparedKernel k = PreparedKernel::single(s, checked_mul(s.groups, s.partials), run_step<1>,
                                            double(s.all_rows()) * (60 + 0.9 * double(s.n)));
  if (s.sums()) {
    k.phases.push_back({checked_mul(s.groups, ceil_div(s.n, kPartialColumns)), run_step<2>});
    const int64_t row_bytes = checked_mul(2 * s.n, s.dtype == DType::kF64 ? 8 : 4);
    k.scratch_bytes = checked_mul(checked_mul(s.groups, s.partials), row_bytes);
  }
  return k;
}

std::string_view fits(const KernelCall&) { return {}; }

constexpr KernelEntry kForward[] = {{.name = "rms_norm:row",
                                     .fits = fits,
                                     .prepare = prepare_forward,
                                     .in_place = 1,
                                     .vector = true}};
constexpr KernelEntry kBackward[] = {
    {.name = "rms_norm_backward:row", .fits = fits, .prepare = prepare_backward, .vector = true}};

}  // namespace

RLX_DEFINE_KERNELS(RmsNorm, Cpu) = {kForward};
RLX_DEFINE_KERNELS(RmsNormBackwardInput, Cpu) = {kBackward};

}  // namespace rlx::cpu
#endif  // HWY_ONCE
