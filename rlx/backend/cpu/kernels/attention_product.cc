// The products of attention's tiles, by the register tiles of the matrix product.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/attention_product.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
HWY_INLINE void RunTiles(const LeftFactor<T>& a, int64_t rows, int64_t k, const T* b,
                         int64_t b_step, int64_t columns, T* c, int64_t c_row, Result result) {
  constexpr auto kLanes = int64_t(hn::MaxLanes(hn::ScalableTag<T>()));
  constexpr int64_t kWholeSum = std::numeric_limits<int64_t>::max();  // nothing to prefetch
  TileArgs<T> t{a.data, a.row,  a.step, b,       b_step,  0,         k, c,
                c_row,  result, kLanes, nullptr, nullptr, kWholeSum, 0};
  int64_t column = 0;
  for (; column + 2 * kLanes <= columns; column += 2 * kLanes) {
    t.b = b + column;
    t.c = c + column;
    kTiles<T, 2, TileForm::kStridedA>[size_t(rows - 1)](t);
  }
  if (column < columns) {
    t.b = b + column;
    t.c = c + column;
    kTiles<T, 1, TileForm::kStridedA>[size_t(rows - 1)](t);
  }
}

}  // namespace

void ProductF32(const LeftFactor<float>& a, int64_t rows, int64_t k, const float* b, int64_t b_step,
                int64_t columns, float* c, int64_t c_row, Result result) {
  RunTiles(a, rows, k, b, b_step, columns, c, c_row, result);
}

void ProductF64(const LeftFactor<double>& a, int64_t rows, int64_t k, const double* b,
                int64_t b_step, int64_t columns, double* c, int64_t c_row, Result result) {
  RunTiles(a, rows, k, b, b_step, columns, c, c_row, result);
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();
