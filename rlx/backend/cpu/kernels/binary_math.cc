#include "rlx/backend/cpu/kernels/binary_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/binary_math.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/math-inl.h"
#include "rlx/backend/cpu/kernels/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

struct PowFn {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y) const {
    return Pow(d, x, y);
  }
};

struct ModFn {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y) const {
    return Mod(d, x, y);
  }
};

struct Atan2Fn {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y) const {
    return Atan2(d, x, y);
  }
};

template <class T>
RowFn Select(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::kPow:
      return VectorRow2<T, PowFn>;
    case BinaryKind::kMod:
      return VectorRow2<T, ModFn>;
    case BinaryKind::kAtan2:
      return VectorRow2<T, Atan2Fn>;
    default:
      return nullptr;
  }
}

}  // namespace

RowFn BinaryMathRow(BinaryKind kind, DType dtype) {
  return dtype == DType::kF64 ? Select<double>(kind) : Select<float>(kind);
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(BinaryMathRow);

RowFn binary_math_row(BinaryKind kind, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(BinaryMathRow)(kind, dtype);
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
