// The functions of cpu_math_test.cc on double: files of their own, since each instantiates
// everything.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/unit/cpu_math_f64.cc"
#include "hwy/foreach_target.h"
// Highway's headers come first.
#include "tests/unit/cpu_math_evaluate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

void evaluate_f64(Fn fn, const double* a, const double* b, double* out, size_t n) {
  evaluate(fn, a, b, out, n);
}
void evaluate_narrow_f64(Fn fn, const double* a, const double* b, double* out, size_t n) {
  evaluate_narrow(fn, a, b, out, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(evaluate_f64);
HWY_EXPORT(evaluate_narrow_f64);

void evaluate_vectors(Fn fn, const double* a, const double* b, double* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(evaluate_f64)(fn, a, b, out, n);
}
void evaluate_narrow_vectors(Fn fn, const double* a, const double* b, double* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(evaluate_narrow_f64)(fn, a, b, out, n);
}

}  // namespace rlx::cpu
#endif
