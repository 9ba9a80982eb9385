#include "rlx/backend/cpu/kernels/reduce_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/reduce_float.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {  // other files have functions of these names

namespace hn = hwy::HWY_NAMESPACE;

// Each operation on vectors and, for tails, on numbers: the bits are the same.
struct SumOp {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Add(a, b);
  }
  template <class T>
  static HWY_INLINE T scalar(T a, T b) {
    return a + b;
  }
};
struct ProdOp {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Mul(a, b);
  }
  template <class T>
  static HWY_INLINE T scalar(T a, T b) {
    return a * b;
  }
};
// A NaN stays: as `a` by the test, as `b` because the comparison fails.
struct MaxOp {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
  }
  template <class T>
  static HWY_INLINE T scalar(T a, T b) {
    return a > b || a != a ? a : b;
  }
};
struct MinOp {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
  }
  template <class T>
  static HWY_INLINE T scalar(T a, T b) {
    return a < b || a != a ? a : b;
  }
};

template <class Op, class T>
void combine(void* to, const void* from, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t step = int64_t(hn::Lanes(d));
  T* HWY_RESTRICT a = static_cast<T*>(to);
  const T* HWY_RESTRICT b = static_cast<const T*>(from);
  int64_t i = 0;
  for (; i + step <= n; i += step) {
    hn::StoreU(Op::apply(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, a + i);
  }
  for (; i < n; ++i) a[i] = Op::scalar(a[i], b[i]);
}

template <class Op, class T>
void blocks(void* to, const void* from, int64_t n) {
  const hn::ScalableTag<T> d;
  constexpr size_t kStep = hn::MaxLanes(d);
  constexpr size_t kVectors = size_t(kReduceLanes) / kStep;
  T* lanes = static_cast<T*>(to);
  const T* x = static_cast<const T*>(from);
  hn::Vec<decltype(d)> sums[kVectors];
  for (size_t v = 0; v < kVectors; ++v) sums[v] = hn::LoadU(d, lanes + v * kStep);
  for (int64_t i = 0; i < n; ++i, x += kReduceLanes) {
    for (size_t v = 0; v < kVectors; ++v) {
      sums[v] = Op::apply(sums[v], hn::LoadU(d, x + v * kStep));
    }
  }
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sums[v], d, lanes + v * kStep);
}

template <class Op>
void set_op(bool is_f64, ReduceOps& ops) {
  ops.combine = is_f64 ? combine<Op, double> : combine<Op, float>;
  ops.blocks = is_f64 ? blocks<Op, double> : blocks<Op, float>;
}

void set(ReduceKind kind, bool is_f64, ReduceOps& ops) {
  switch (kind) {
    case ReduceKind::kMax:
      return set_op<MaxOp>(is_f64, ops);
    case ReduceKind::kMin:
      return set_op<MinOp>(is_f64, ops);
    case ReduceKind::kProd:
      return set_op<ProdOp>(is_f64, ops);
    default:
      return set_op<SumOp>(is_f64, ops);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(set);

void set_float_reduce(ReduceKind kind, bool is_f64, ReduceOps& ops) {
  HWY_DYNAMIC_DISPATCH(set)(kind, is_f64, ops);
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
