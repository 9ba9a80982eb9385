// Row functions (see elementwise_loop.h) from function objects, by vectors and by plain loops.
// Include after "hwy/foreach_target.h"; lives in rlx::cpu::HWY_NAMESPACE.
//   VectorRow1<T, F>, VectorRow2<T, F>   F: V operator()(D, V) or (D, V, V), T of 4 or 8 bytes
//   PlainRow1<R, A, F>, PlainRow2<R, A, B, F>, PlainRow3<R, A, B, C, F>   F: R operator()(A, ...)

#if defined(RLX_BACKEND_CPU_KERNELS_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RLX_BACKEND_CPU_KERNELS_ROW_INL_H_
#undef RLX_BACKEND_CPU_KERNELS_ROW_INL_H_
#else
#define RLX_BACKEND_CPU_KERNELS_ROW_INL_H_
#endif

#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/elementwise_loop.h"

// The elements of one group are independent: nothing but an operand in its own place may overlap.
// Without unrolling, because a group that is unrolled first is no loop any more: the compiler then
// vectorizes the loop over groups, in a copy for operands that do not overlap with the result.
#if defined(__clang__)
#define RLX_VECTORIZE_GROUP _Pragma("clang loop vectorize(assume_safety) unroll(disable)")
#else
#define RLX_VECTORIZE_GROUP _Pragma("GCC ivdep") _Pragma("GCC unroll 1")
#endif

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// No more lanes than a group has, whatever the machine.
template <class T>
using RowTag = hn::CappedTag<T, size_t(kRowGroup)>;

template <class T, class F>
void VectorRow1(const Row& r) {
  const RowTag<T> d;
  for (int64_t k = 0; k < r.count; k += int64_t(hn::Lanes(d))) {
    hn::StoreU(F()(d, hn::LoadU(d, r.at<T>(0, k))), d, r.result<T>(k));
  }
}

template <class T, class F>
void VectorRow2(const Row& r) {
  const RowTag<T> d;
  for (int64_t k = 0; k < r.count; k += int64_t(hn::Lanes(d))) {
    const auto x = hn::LoadU(d, r.at<T>(0, k));
    const auto y = hn::LoadU(d, r.at<T>(1, k));
    hn::StoreU(F()(d, x, y), d, r.result<T>(k));
  }
}

#if defined(__clang__)
#pragma clang diagnostic push
// Not every function vectorizes, and none does without optimization.
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

template <class R, class A, class F>
void PlainRow1(const Row& r) {
  for (int64_t k = 0; k < r.count; k += kRowGroup) {
    const A* a = r.at<A>(0, k);
    R* y = r.result<R>(k);
    RLX_VECTORIZE_GROUP
    for (int64_t j = 0; j < kRowGroup; ++j) y[j] = F()(a[j]);
  }
}

template <class R, class A, class B, class F>
void PlainRow2(const Row& r) {
  for (int64_t k = 0; k < r.count; k += kRowGroup) {
    const A* a = r.at<A>(0, k);
    const B* b = r.at<B>(1, k);
    R* y = r.result<R>(k);
    RLX_VECTORIZE_GROUP
    for (int64_t j = 0; j < kRowGroup; ++j) y[j] = F()(a[j], b[j]);
  }
}

template <class R, class A, class B, class C, class F>
void PlainRow3(const Row& r) {
  for (int64_t k = 0; k < r.count; k += kRowGroup) {
    const A* a = r.at<A>(0, k);
    const B* b = r.at<B>(1, k);
    const C* c = r.at<C>(2, k);
    R* y = r.result<R>(k);
    RLX_VECTORIZE_GROUP
    for (int64_t j = 0; j < kRowGroup; ++j) y[j] = F()(a[j], b[j], c[j]);
  }
}

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#endif
