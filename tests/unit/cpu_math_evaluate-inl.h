// Every function under test on one element type, as switches over Fn. Included once per target by
// cpu_math_f32.cc and cpu_math_f64.cc.

#if defined(RLX_TESTS_UNIT_CPU_MATH_EVALUATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RLX_TESTS_UNIT_CPU_MATH_EVALUATE_INL_H_
#undef RLX_TESTS_UNIT_CPU_MATH_EVALUATE_INL_H_
#else
#define RLX_TESTS_UNIT_CPU_MATH_EVALUATE_INL_H_
#endif

#include "rlx/backend/cpu/kernels/activation_math-inl.h"
#include "tests/unit/cpu_math_functions.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

// Calls f on whole vectors and on a padded tail.
template <class D, class F, class T>
HWY_INLINE void apply(D d, const F& f, const T* a, const T* b, T* out, size_t n) {
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(f(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  }
  if (i == n) return;
  T tail_a[hn::MaxLanes(D())] = {}, tail_b[hn::MaxLanes(D())] = {}, tail_out[hn::MaxLanes(D())];
  for (size_t j = i; j < n; ++j) tail_a[j - i] = a[j], tail_b[j - i] = b[j];
  hn::StoreU(f(d, hn::LoadU(d, tail_a), hn::LoadU(d, tail_b)), d, tail_out);
  for (size_t j = i; j < n; ++j) out[j] = tail_out[j - i];
}

#define RLX_OBJECT(Name, call)                     \
  struct Test##Name {                              \
    template <class D, class V>                    \
    HWY_INLINE V operator()(D d, V a, V b) const { \
      (void)b;                                     \
      return call;                                 \
    }                                              \
  };
#define RLX_ACTIVATION(Name)         \
  RLX_OBJECT(Name, Name##Fn()(d, a)) \
  RLX_OBJECT(Name##Grad, Name##GradFn()(d, a))
#define RLX_UNARY(Name) RLX_OBJECT(Name, Name(d, a))
#define RLX_BINARY(Name) RLX_OBJECT(Name, Name(d, a, b))
RLX_TEST_ACTIVATIONS(RLX_ACTIVATION)
RLX_TEST_UNARY(RLX_UNARY)
RLX_TEST_BINARY(RLX_BINARY)

template <class T>
void evaluate(Fn fn, const T* a, const T* b, T* out, size_t n) {
  const hn::ScalableTag<T> d;
  switch (fn) {
#define RLX_CASE(Name) \
  case Fn::k##Name:    \
    return apply(d, Test##Name(), a, b, out, n);
#define RLX_CASES(Name) RLX_CASE(Name) RLX_CASE(Name##Grad)
    RLX_TEST_ACTIVATIONS(RLX_CASES)
    RLX_TEST_UNARY(RLX_CASE)
    RLX_TEST_BINARY(RLX_CASE)
#undef RLX_CASES
#undef RLX_CASE
  }
}
#undef RLX_ACTIVATION
#undef RLX_UNARY
#undef RLX_BINARY
#undef RLX_OBJECT

// The same with vectors of at most two lanes, for functions of every make.
template <class T>
void evaluate_narrow(Fn fn, const T* a, const T* b, T* out, size_t n) {
  const hn::CappedTag<T, 2> d;
  if (fn == Fn::kGelu) return apply(d, TestGelu(), a, b, out, n);
  if (fn == Fn::kSin) return apply(d, TestSin(), a, b, out, n);
  if (fn == Fn::kLog1p) return apply(d, TestLog1p(), a, b, out, n);
  if (fn == Fn::kPow) return apply(d, TestPow(), a, b, out, n);
  return apply(d, TestMod(), a, b, out, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
