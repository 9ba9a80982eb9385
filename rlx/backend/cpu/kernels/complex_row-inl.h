// Row functions of complex numbers: the loop's interleaved elements as separate vectors of real and
// imaginary parts. T is the type of a part, F a function object P operator()(D, P, ...) over Parts.
// Plain loops would not do: from a product of std::complex's kind g++ 12 makes fused multiply-adds
// in the vectorized copy of the loop only, whatever -ffp-contract says.
// Include after "hwy/foreach_target.h"; lives in rlx::cpu::HWY_NAMESPACE.

#if defined(RLX_BACKEND_CPU_KERNELS_COMPLEX_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RLX_BACKEND_CPU_KERNELS_COMPLEX_ROW_INL_H_
#undef RLX_BACKEND_CPU_KERNELS_COMPLEX_ROW_INL_H_
#else
#define RLX_BACKEND_CPU_KERNELS_COMPLEX_ROW_INL_H_
#endif

#include "rlx/backend/cpu/kernels/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

template <class V>
struct Parts {
  V re, im;
};

template <class T, class D>
HWY_INLINE Parts<hn::Vec<D>> LoadParts(D d, const Row& r, size_t i, int64_t k) {
  Parts<hn::Vec<D>> p;
  hn::LoadInterleaved2(d, static_cast<const T*>(r.in[i]) + 2 * k * r.step[i], p.re, p.im);
  return p;
}

template <class T, class D>
HWY_INLINE void StoreParts(D d, Parts<hn::Vec<D>> p, const Row& r, int64_t k) {
  hn::StoreInterleaved2(p.re, p.im, d, static_cast<T*>(r.out) + 2 * k);
}

template <class T, class F>
void PartsRow1(const Row& r) {
  const RowTag<T> d;
  for (int64_t k = 0; k < r.count; k += int64_t(hn::Lanes(d))) {
    StoreParts<T>(d, F()(d, LoadParts<T>(d, r, 0, k)), r, k);
  }
}

template <class T, class F>
void PartsRow2(const Row& r) {
  const RowTag<T> d;
  for (int64_t k = 0; k < r.count; k += int64_t(hn::Lanes(d))) {
    StoreParts<T>(d, F()(d, LoadParts<T>(d, r, 0, k), LoadParts<T>(d, r, 1, k)), r, k);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#endif
