#include "rlx/backend/cpu/kernels/binary_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/binary_float.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

#define RLX_BINARY_FUNCTION(Name, expression)          \
  struct Name {                                        \
    template <class D, class V>                        \
    HWY_INLINE V operator()(D /*d*/, V x, V y) const { \
      return expression;                               \
    }                                                  \
  };

RLX_BINARY_FUNCTION(AddFn, hn::Add(x, y))
RLX_BINARY_FUNCTION(SubFn, hn::Sub(x, y))
RLX_BINARY_FUNCTION(MulFn, hn::Mul(x, y))
RLX_BINARY_FUNCTION(DivFn, hn::Div(x, y))

#undef RLX_BINARY_FUNCTION

// x where it wins, y where it does not, and where they are equal (so perhaps zeros of both signs)
// `tie`. The sum of the operands is NaN if one is.
template <class V, class M>
HWY_INLINE V Choose(V x, V y, M x_wins, V tie) {
  const V chosen = hn::IfThenElse(hn::Eq(x, y), tie, hn::IfThenElse(x_wins, x, y));
  const V sum = hn::Add(x, y);
  const auto any_nan = hn::Or(hn::IsNaN(x), hn::IsNaN(y));
  return hn::IfThenElse(any_nan, sum, chosen);
}

struct MaxFn {
  template <class D, class V>
  HWY_INLINE V operator()(D /*d*/, V x, V y) const {
    return Choose(x, y, hn::Gt(x, y), hn::And(x, y));
  }
};

struct MinFn {
  template <class D, class V>
  HWY_INLINE V operator()(D /*d*/, V x, V y) const {
    return Choose(x, y, hn::Lt(x, y), hn::Or(x, y));
  }
};

template <class T>
RowFn Select(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::kAdd:
      return VectorRow2<T, AddFn>;
    case BinaryKind::kSub:
      return VectorRow2<T, SubFn>;
    case BinaryKind::kMul:
      return VectorRow2<T, MulFn>;
    case BinaryKind::kDiv:
      return VectorRow2<T, DivFn>;
    case BinaryKind::kMax:
      return VectorRow2<T, MaxFn>;
    case BinaryKind::kMin:
      return VectorRow2<T, MinFn>;
    default:
      return nullptr;
  }
}

}  // namespace

RowFn BinaryFloatRow(BinaryKind kind, DType dtype) {
  return dtype == DType::kF64 ? Select<double>(kind) : Select<float>(kind);
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(BinaryFloatRow);

RowFn binary_float_row(BinaryKind kind, DType dtype) {
  const RowFn row = HWY_DYNAMIC_DISPATCH(BinaryFloatRow)(kind, dtype);
  return row != nullptr ? row : binary_math_row(kind, dtype);
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
