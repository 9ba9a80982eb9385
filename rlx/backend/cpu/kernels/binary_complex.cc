#include <complex>

#include "rlx/backend/cpu/kernels/binary_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/binary_complex.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

// Plain parts instead of std::complex, whose product checks for NaN and calls the library.
template <class T>
struct Parts {
  T re, im;
};

template <class T>
struct AddFn {
  HWY_INLINE Parts<T> operator()(Parts<T> a, Parts<T> b) const {
    return {a.re + b.re, a.im + b.im};
  }
};
template <class T>
struct SubFn {
  HWY_INLINE Parts<T> operator()(Parts<T> a, Parts<T> b) const {
    return {a.re - b.re, a.im - b.im};
  }
};
template <class T>
struct MulFn {
  HWY_INLINE Parts<T> operator()(Parts<T> a, Parts<T> b) const {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
};
// By the larger part of the divisor, so that its square cannot overflow.
template <class T>
struct DivFn {
  HWY_INLINE Parts<T> operator()(Parts<T> a, Parts<T> b) const {
    const bool real = std::abs(b.re) >= std::abs(b.im);
    const T large = real ? b.re : b.im, small = real ? b.im : b.re;
    const T ratio = small / large;
    const T scale = large + small * ratio;
    const T re = real ? a.re + a.im * ratio : a.re * ratio + a.im;
    const T im = real ? a.im - a.re * ratio : a.im * ratio - a.re;
    return {re / scale, im / scale};
  }
};

template <class T, template <class> class F>
constexpr RowFn kRow = PlainRow2<Parts<T>, Parts<T>, Parts<T>, F<T>>;

template <class T>
RowFn Select(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::kAdd:
      return kRow<T, AddFn>;
    case BinaryKind::kSub:
      return kRow<T, SubFn>;
    case BinaryKind::kMul:
      return kRow<T, MulFn>;
    case BinaryKind::kDiv:
      return kRow<T, DivFn>;
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
