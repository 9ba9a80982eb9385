#include "rlx/backend/cpu/group/product_store.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/group/product_store.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep: includes this file once per instruction set
#include "hwy/highway.h"
#include "rlx/backend/cpu/gemm/gemm_pack-inl.h"
#include "rlx/backend/cpu/kernels/activation_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

struct Itself {
  HWY_INLINE V operator()(D /*d*/, V x) const { return x; }
};

// A vector of columns, or a part of one, in all rows.
template <class F, bool kBias, bool kResidual, bool kPart>
HWY_INLINE void columns(const ProductStore& s, int64_t j, size_t count) {
  const D d;
  const auto load = [=](const float* p) {
    if constexpr (kPart) return load_part(d, p, count);
    return hn::LoadU(d, p);
  };
  const auto store = [=](V v, float* p) {
    if constexpr (kPart) {
      store_part(v, d, p, count);
    } else {
      hn::StoreU(v, d, p);
    }
  };
  const V bias = kBias ? load(s.bias + j) : hn::Zero(d);
  for (int64_t i = 0; i < s.rows; ++i) {
    V v = load(s.sums + i * s.sums_step + j);
    const int64_t at = i * s.step + j;
    if constexpr (kBias) v = hn::Add(v, bias);
    if (s.before) store(v, s.before + at);
    v = F()(d, v);
    if constexpr (kResidual) v = hn::Add(v, load(s.residual + at));
    store(v, s.result + at);
  }
}

template <class F, bool kBias, bool kResidual>
void run(const ProductStore& s) {
  constexpr int64_t kLanes = hn::MaxLanes(D());
  int64_t j = 0;
  for (; j + kLanes <= s.columns; j += kLanes) columns<F, kBias, kResidual, false>(s, j, 0);
  if (j < s.columns) columns<F, kBias, kResidual, true>(s, j, static_cast<size_t>(s.columns - j));
}

template <class F>
ProductStoreFn select(bool bias, bool residual) {
  if (bias) return residual ? &run<F, true, true> : &run<F, true, false>;
  return residual ? &run<F, false, true> : &run<F, false, false>;
}

ProductStoreFn select_store(std::optional<ActivationKind> activation, bool bias, bool residual) {
  if (!activation) return select<Itself>(bias, residual);
  if (*activation == ActivationKind::kRelu) return select<ReluFn>(bias, residual);
  return *activation == ActivationKind::kGelu ? select<GeluFn>(bias, residual)
                                              : select<GeluApproxFn>(bias, residual);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(select_store);

ProductStoreFn product_store(std::optional<ActivationKind> activation, bool bias, bool residual) {
  return HWY_DYNAMIC_DISPATCH(select_store)(activation, bias, residual);
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
