// Activations of integers and complex numbers, and the selections among the derivatives.
#include <type_traits>

#include "rlx/backend/cpu/kernels/activation_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/activation_other.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/complex_row-inl.h"
#include "rlx/backend/cpu/kernels/math-inl.h"
#include "rlx/backend/cpu/kernels/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

// ---- Integers ----

template <class T>
struct NegInt {
  HWY_INLINE T operator()(T x) const { return T(0 - std::make_unsigned_t<T>(x)); }
};
template <class T>
struct AbsInt {
  HWY_INLINE T operator()(T x) const { return x < 0 ? NegInt<T>()(x) : x; }
};
template <class T>
struct SignInt {
  HWY_INLINE T operator()(T x) const { return T(T(x > 0) - T(x < 0)); }
};
template <class T>
struct ReluInt {
  HWY_INLINE T operator()(T x) const { return x < 0 ? T(0) : x; }
};
template <class T>
struct Same {
  HWY_INLINE T operator()(T x) const { return x; }
};
template <class T>
struct ReluBackward {
  HWY_INLINE T operator()(T x, T dy) const { return x <= 0 ? T(0) : dy; }
};
template <class T>
struct Second {
  HWY_INLINE T operator()(T, T dy) const { return dy; }
};

template <class T>
RowFn SelectInteger(ActivationKind kind) {
  constexpr bool kSigned = std::is_signed_v<T>;
  switch (kind) {
    case ActivationKind::kNeg:
      return PlainRow1<T, T, NegInt<T>>;
    case ActivationKind::kAbs:
      return kSigned ? PlainRow1<T, T, AbsInt<T>> : PlainRow1<T, T, Same<T>>;
    case ActivationKind::kSign:
      return PlainRow1<T, T, SignInt<T>>;
    case ActivationKind::kRelu:
      return kSigned ? PlainRow1<T, T, ReluInt<T>> : PlainRow1<T, T, Same<T>>;
    default:  // Round, Floor, Ceil
      return PlainRow1<T, T, Same<T>>;
  }
}

// ---- Complex numbers ----

struct NegParts {
  template <class D, class P>
  HWY_INLINE P operator()(D, P x) const {
    return {hn::Neg(x.re), hn::Neg(x.im)};
  }
};

// By the larger part, so that no square overflows: for |re| >= |im| and q = im / re it is
// (1 - q i) / (re + im q).
struct RecipParts {
  template <class D, class P>
  HWY_INLINE P operator()(D d, P x) const {
    const auto one = hn::Set(d, 1);
    const auto real = hn::Ge(hn::Abs(x.re), hn::Abs(x.im));
    const auto large = hn::IfThenElse(real, x.re, x.im);
    const auto small = hn::IfThenElse(real, x.im, x.re);
    const auto q = hn::Div(small, large);
    const auto scale = hn::Div(one, hn::Add(large, hn::Mul(small, q)));
    const auto minor = hn::Mul(q, scale);
    return {hn::IfThenElse(real, scale, minor), hn::Neg(hn::IfThenElse(real, minor, scale))};
  }
};

struct ExpParts {
  template <class D, class P>
  HWY_INLINE P operator()(D d, P x) const {
    const auto size = Exp(d, x.re);
    return {hn::Mul(size, Cos(d, x.im)), hn::Mul(size, Sin(d, x.im))};
  }
};

// dy conj(slope)
template <class D, class P>
HWY_INLINE P TimesConjugate(D, P dy, P slope) {
  return {hn::Add(hn::Mul(dy.re, slope.re), hn::Mul(dy.im, slope.im)),
          hn::Sub(hn::Mul(dy.im, slope.re), hn::Mul(dy.re, slope.im))};
}

struct NegBackwardParts {
  template <class D, class P>
  HWY_INLINE P operator()(D d, P, P dy) const {
    return NegParts()(d, dy);
  }
};

struct ExpBackwardParts {
  template <class D, class P>
  HWY_INLINE P operator()(D d, P x, P dy) const {
    return TimesConjugate(d, dy, ExpParts()(d, x));
  }
};

struct RecipBackwardParts {
  template <class D, class P>
  HWY_INLINE P operator()(D d, P x, P dy) const {
    const P q = RecipParts()(d, x);
    const P half = TimesConjugate(d, NegParts()(d, dy), q);
    return TimesConjugate(d, half, q);
  }
};

template <class T>
RowFn SelectComplex(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kNeg:
      return PartsRow1<T, NegParts>;
    case ActivationKind::kRecip:
      return PartsRow1<T, RecipParts>;
    case ActivationKind::kExp:
      return PartsRow1<T, ExpParts>;
    default:
      return nullptr;
  }
}

template <class T>
RowFn SelectComplexBackward(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kNeg:
      return PartsRow2<T, NegBackwardParts>;
    case ActivationKind::kRecip:
      return PartsRow2<T, RecipBackwardParts>;
    case ActivationKind::kExp:
      return PartsRow2<T, ExpBackwardParts>;
    default:
      return nullptr;
  }
}

RowFn IntegerRow(ActivationKind kind, DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return SelectInteger<int8_t>(kind);
    case DType::kI16:
      return SelectInteger<int16_t>(kind);
    case DType::kI32:
      return SelectInteger<int32_t>(kind);
    case DType::kI64:
      return SelectInteger<int64_t>(kind);
    case DType::kU8:
      return SelectInteger<uint8_t>(kind);
    case DType::kU16:
      return SelectInteger<uint16_t>(kind);
    case DType::kU32:
      return SelectInteger<uint32_t>(kind);
    case DType::kU64:
      return SelectInteger<uint64_t>(kind);
    default:
      return nullptr;
  }
}

RowFn ComplexRow(ActivationKind kind, DType dtype) {
  return dtype == DType::kC64 ? SelectComplex<float>(kind) : SelectComplex<double>(kind);
}

RowFn ComplexBackwardRow(ActivationKind kind, DType dtype) {
  return dtype == DType::kC64 ? SelectComplexBackward<float>(kind)
                              : SelectComplexBackward<double>(kind);
}

template <class T>
constexpr RowFn kRelu = PlainRow2<T, T, T, ReluBackward<T>>;
template <class T>
constexpr RowFn kSecond = PlainRow2<T, T, T, Second<T>>;

RowFn ReluBackwardRow(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return kRelu<int8_t>;
    case DType::kI16:
      return kRelu<int16_t>;
    case DType::kI32:
      return kRelu<int32_t>;
    case DType::kI64:
      return kRelu<int64_t>;
    case DType::kU8:
      return kRelu<uint8_t>;
    case DType::kU16:
      return kRelu<uint16_t>;
    case DType::kU32:
      return kRelu<uint32_t>;
    case DType::kU64:
      return kRelu<uint64_t>;
    case DType::kF64:
      return kRelu<double>;
    default:  // f32 and what is widened to it
      return kRelu<float>;
  }
}

RowFn SecondRow(DType dtype) { return dtype == DType::kF64 ? kSecond<double> : kSecond<float>; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(IntegerRow);
HWY_EXPORT(ComplexRow);
HWY_EXPORT(ComplexBackwardRow);
HWY_EXPORT(ReluBackwardRow);
HWY_EXPORT(SecondRow);

RowFn activation_integer_row(ActivationKind kind, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(IntegerRow)(kind, dtype);
}
RowFn activation_complex_row(ActivationKind kind, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(ComplexRow)(kind, dtype);
}
RowFn activation_backward_complex_row(ActivationKind kind, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(ComplexBackwardRow)(kind, dtype);
}
RowFn relu_backward_row(DType dtype) { return HWY_DYNAMIC_DISPATCH(ReluBackwardRow)(dtype); }
RowFn second_operand_row(DType dtype) { return HWY_DYNAMIC_DISPATCH(SecondRow)(dtype); }

}  // namespace rlx::cpu
#endif  // HWY_ONCE
