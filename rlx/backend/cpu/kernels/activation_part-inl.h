// One part of the activation rows: a body for the file that defines RLX_KINDS(K), which lists its
// kinds. No include guard: it is included once per instruction set.
//   ActivationPart(kind, dtype)           y = f(x)
//   ActivationBackwardPart(kind, dtype)   dx = dy f'(x)
#include "rlx/backend/cpu/kernels/activation_math-inl.h"
#include "rlx/backend/cpu/kernels/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class F>
struct TimesSlope {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V dy) const {
    return hn::Mul(dy, F()(d, x));
  }
};

template <class T>
RowFn Select(ActivationKind kind) {
  switch (kind) {
#define RLX_KIND(K)          \
  case ActivationKind::k##K: \
    return VectorRow1<T, K##Fn>;
    RLX_KINDS(RLX_KIND)
#undef RLX_KIND
    default:
      return nullptr;
  }
}

template <class T>
RowFn SelectBackward(ActivationKind kind) {
  switch (kind) {
#define RLX_KIND(K)          \
  case ActivationKind::k##K: \
    return VectorRow2<T, TimesSlope<K##GradFn>>;
    RLX_KINDS(RLX_KIND)
#undef RLX_KIND
    default:
      return nullptr;
  }
}

RowFn ActivationPart(ActivationKind kind, DType dtype) {
  return dtype == DType::kF64 ? Select<double>(kind) : Select<float>(kind);
}

RowFn ActivationBackwardPart(ActivationKind kind, DType dtype) {
  return dtype == DType::kF64 ? SelectBackward<double>(kind) : SelectBackward<float>(kind);
}

}  // namespace

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();
