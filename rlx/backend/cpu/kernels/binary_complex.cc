#include "rlx/backend/cpu/kernels/binary_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/binary_complex.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/complex_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

struct AddParts {
  template <class D, class P>
  HWY_INLINE P operator()(D, P a, P b) const {
    return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)};
  }
};

struct SubParts {
  template <class D, class P>
  HWY_INLINE P operator()(D, P a, P b) const {
    return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)};
  }
};

struct MulParts {
  template <class D, class P>
  HWY_INLINE P operator()(D, P a, P b) const {
    return {hn::Sub(hn::Mul(a.re, b.re), hn::Mul(a.im, b.im)),
            hn::Add(hn::Mul(a.re, b.im), hn::Mul(a.im, b.re))};
  }
};

// By the larger part of the divisor, so that its square cannot overflow.
struct DivParts {
  template <class D, class P>
  HWY_INLINE P operator()(D, P a, P b) const {
    const auto real = hn::Ge(hn::Abs(b.re), hn::Abs(b.im));
    const auto large = hn::IfThenElse(real, b.re, b.im);
    const auto small = hn::IfThenElse(real, b.im, b.re);
    const auto q = hn::Div(small, large);
    const auto scale = hn::Add(large, hn::Mul(small, q));
    const auto first = hn::IfThenElse(real, a.re, a.im);
    const auto second = hn::IfThenElse(real, a.im, a.re);
    const auto re = hn::Add(first, hn::Mul(second, q));
    const auto im = hn::Sub(second, hn::Mul(first, q));
    return {hn::Div(re, scale), hn::Div(hn::IfThenElse(real, im, hn::Neg(im)), scale)};
  }
};

template <class T>
RowFn Select(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::kAdd:
      return PartsRow2<T, AddParts>;
    case BinaryKind::kSub:
      return PartsRow2<T, SubParts>;
    case BinaryKind::kMul:
      return PartsRow2<T, MulParts>;
    case BinaryKind::kDiv:
      return PartsRow2<T, DivParts>;
    default:
      return nullptr;
  }
}

}  // namespace

RowFn BinaryComplexRow(BinaryKind kind, DType dtype) {
  return dtype == DType::kC64 ? Select<float>(kind) : Select<double>(kind);
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(BinaryComplexRow);

RowFn binary_complex_row(BinaryKind kind, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(BinaryComplexRow)(kind, dtype);
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
