#include "rlx/ops/extent.h"

#include <limits>

#include "rlx/backend/reference/reference.h"

namespace rlx::reference {
namespace {

void extent(const Call& call) { call.results[0].i[0] = call.as<ExtentAttrs>().size.value(); }

int64_t integer_fill(DType t, FillValue fill) {
  if (fill == FillValue::kZero) return 0;
  if (fill == FillValue::kOne) return 1;
  const bool highest = fill == FillValue::kHighest;
  if (t == DType::kBool) return highest;
  const auto bits = unsigned(8 * size_of(t));
  if (class_of(t) == DTypeClass::kUnsigned) {
    return highest ? int64_t(~uint64_t(0) >> (64 - bits)) : 0;
  }
  const auto most = int64_t(~uint64_t(0) >> (65 - bits));
  return highest ? most : -most - 1;
}

double float_fill(FillValue fill) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kValues[] = {0, 1, -kInfinity, kInfinity};
  return kValues[size_t(fill)];
}

void fill_tail(const Call& call) {
  const auto& a = call.as<FillTailAttrs>();
  const Tensor& x = call.operands[0];
  const int64_t n = call.operands[1].i[0];
  Tensor& y = call.results[0];
  for_each_index(y.shape, [&](int64_t flat, const Dims& index) {
    const auto k = size_t(flat);
    const bool live = index[size_t(a.axis)] < n;
    if (!y.f.empty()) y.f[k] = live ? x.f[k] : float_fill(a.fill);
    if (!y.i.empty()) y.i[k] = live ? x.i[k] : integer_fill(y.dtype, a.fill);
    if (!y.c.empty()) y.c[k] = live ? x.c[k] : float_fill(a.fill);
  });
}

}  // namespace

RLX_DEFINE_REFERENCE(Extent) = extent;
RLX_DEFINE_REFERENCE(FillTail) = fill_tail;

}  // namespace rlx::reference
