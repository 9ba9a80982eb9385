#include "rlx/backend/cpu/kernels/cast_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/cast_complex.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/cast-inl.h"
#include "rlx/backend/cpu/kernels/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
struct Parts {
  T re, im;
};

template <class To>
struct RealFn {
  template <class From>
  HWY_INLINE To operator()(Parts<From> v) const {
    if constexpr (std::is_same_v<To, bool>) {
      return (v.re != 0) | (v.im != 0);
    } else {
      return Convert<To>(v.re);
    }
  }
};

struct OddRealFn {
  template <class From>
  HWY_INLINE float operator()(Parts<From> v) const {
    return ToOdd(v.re);
  }
};

template <class To>
struct ComplexFn {
  template <class From>
  HWY_INLINE Parts<To> operator()(From v) const {
    return {To(v), To(0)};
  }
  template <class From>
  HWY_INLINE Parts<To> operator()(Parts<From> v) const {
    return {To(v.re), To(v.im)};
  }
};

template <class From>
RowFn ToReal(DType to) {
  switch (to) {
    case DType::kF16:
    case DType::kBF16:
      return PlainRow1<float, Parts<From>, OddRealFn>;
    default:
      return visit_dtype(to, [&]<class T>() -> RowFn {
        if constexpr (std::is_arithmetic_v<T>) {
          return PlainRow1<T, Parts<From>, RealFn<T>>;
        } else {
          return nullptr;
        }
      });
  }
}

template <class To>
RowFn ToComplex(DType from) {
  switch (from) {
    case DType::kC64:
      return PlainRow1<Parts<To>, Parts<float>, ComplexFn<To>>;
    case DType::kC128:
      return PlainRow1<Parts<To>, Parts<double>, ComplexFn<To>>;
    case DType::kBool:
      return PlainRow1<Parts<To>, uint8_t, ComplexFn<To>>;
    case DType::kF16:
    case DType::kBF16:
      return PlainRow1<Parts<To>, float, ComplexFn<To>>;
    default:
      return visit_dtype(from, [&]<class T>() -> RowFn {
        if constexpr (std::is_arithmetic_v<T>) {
          return PlainRow1<Parts<To>, T, ComplexFn<To>>;
        } else {
          return nullptr;
        }
      });
  }
}

RowFn CastComplex(DType from, DType to) {
  if (to == DType::kC64) return ToComplex<float>(from);
  if (to == DType::kC128) return ToComplex<double>(from);
  return from == DType::kC64 ? ToReal<float>(to) : ToReal<double>(to);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(CastComplex);

RowFn cast_complex_row(DType from, DType to) { return HWY_DYNAMIC_DISPATCH(CastComplex)(from, to); }

}  // namespace rlx::cpu
#endif  // HWY_ONCE
