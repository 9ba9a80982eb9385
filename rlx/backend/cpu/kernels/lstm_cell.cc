#include "rlx/backend/cpu/kernels/lstm_cell.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/lstm_cell.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/math-inl.h"
#include "rlx/backend/cpu/kernels/row_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

// The operations and their order are those of the decomposition.
template <class S>
void CellRow(const LstmCell& cell) {
  using T = Wide<S>;
  const hn::ScalableTag<T> d;
  const auto *inputs = static_cast<const T*>(cell.inputs), *bias = static_cast<const T*>(cell.bias);
  const auto* recurrent = static_cast<const T*>(cell.recurrent);
  auto *c = static_cast<T*>(cell.c), *h = static_cast<T*>(cell.h);
  auto* y = static_cast<S*>(cell.y);
  ForRow(d, size_t(cell.count), [&](size_t j, size_t n) HWY_ATTR {
    const auto gate = [&](size_t g) HWY_ATTR {
      const size_t at = g * size_t(cell.input_stride) + j;
      const auto x = hn::Add(LoadCount(d, inputs + at, n), LoadCount(d, bias + at, n));
      return hn::Add(x, LoadCount(d, recurrent + g * size_t(cell.recurrent_stride) + j, n));
    };
    const auto in = Sigmoid(d, gate(0)), forget = Sigmoid(d, gate(1));
    const auto kept = hn::Mul(forget, LoadCount(d, c + j, n));
    const auto next = hn::Add(kept, hn::Mul(in, Tanh(d, gate(2))));
    const auto out = hn::Mul(Sigmoid(d, gate(3)), Tanh(d, next));
    StoreCount(next, d, c + j, n);
    StoreCount(out, d, h + j, n);
    if (y) StoreCount(out, d, y + j, n);
  });
}

}  // namespace

void CellStep(DType y, const LstmCell& cell) {
  WithFloatType(y, [&]<class S>() { CellRow<S>(cell); });
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(CellStep);

void lstm_cell(DType y, const LstmCell& cell) { HWY_DYNAMIC_DISPATCH(CellStep)(y, cell); }

}  // namespace rlx::cpu
#endif  // HWY_ONCE
