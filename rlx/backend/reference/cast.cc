#include "rlx/ops/cast.h"

#include <cmath>
#include <limits>

#include "rlx/backend/reference/reference.h"

namespace rlx::reference {
namespace {

// Cut off, ends saturate, NaN is 0; the bits of an unsigned result.
template <class T>
int64_t saturate(double v) {
  if (std::isnan(v)) return 0;
  // The smallest number is a power of two or 0, so exact; one above the largest is a power of two.
  const double low = double(std::numeric_limits<T>::min());
  const double above = std::ldexp(1.0, std::numeric_limits<T>::digits);
  const double cut = std::trunc(v);
  if (cut <= low) return int64_t(std::numeric_limits<T>::min());
  if (cut >= above) return int64_t(std::numeric_limits<T>::max());
  return int64_t(T(cut));
}

int64_t to_integer(double v, DType to) {
  return visit_dtype(to, [&]<class T>() -> int64_t {
    if constexpr (std::is_same_v<T, bool>) {
      return v != 0;
    } else if constexpr (std::is_integral_v<T>) {
      return saturate<T>(v);
    } else {
      return 0;
    }
  });
}

double to_double(int64_t v, DType from) {
  return class_of(from) == DTypeClass::kUnsigned ? double(uint64_t(v)) : double(v);
}

void cast(const Call& call) {
  const Tensor& x = call.operands[0];
  Tensor& y = call.results[0];
  const auto n = size_t(x.size());
  for (size_t k = 0; k < n; ++k) {
    if (!x.i.empty() && !y.i.empty()) {
      // The driver keeps the low bits; only bool asks for more.
      y.i[k] = y.dtype == DType::kBool ? x.i[k] != 0 : x.i[k];
      continue;
    }
    std::complex<double> v;
    if (!x.f.empty()) v = x.f[k];
    if (!x.i.empty()) v = to_double(x.i[k], x.dtype);
    if (!x.c.empty()) v = x.c[k];
    if (!y.f.empty()) y.f[k] = v.real();
    if (!y.c.empty()) y.c[k] = v;
    if (!y.i.empty()) {
      y.i[k] = y.dtype == DType::kBool ? v != 0.0 : to_integer(v.real(), y.dtype);
    }
  }
}

}  // namespace

RLX_DEFINE_REFERENCE(Cast) = cast;

}  // namespace rlx::reference
