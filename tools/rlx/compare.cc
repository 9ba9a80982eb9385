#include "tools/rlx/compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <limits>

#include "rlx/base/half.h"

namespace rlx::cli {
namespace {

// The place of x among all numbers of its type.
template <class Bits, class T>
double place(T x) {
  constexpr Bits kSign = Bits(1) << (8 * sizeof(Bits) - 1);
  const auto bits = std::bit_cast<Bits>(x);
  const auto magnitude = double(Bits(bits & Bits(~kSign)));
  return bits & kSign ? -magnitude : magnitude;
}

template <class T>
double ulps_between(T a, T b) {
  if constexpr (std::is_same_v<T, double>) {
    return std::fabs(place<uint64_t>(a) - place<uint64_t>(b));
  } else if constexpr (std::is_same_v<T, float>) {
    return std::fabs(place<uint32_t>(a) - place<uint32_t>(b));
  } else {
    return std::fabs(place<uint16_t>(a) - place<uint16_t>(b));
  }
}

// Distance from 1 to the next number.
template <class T>
double epsilon() {
  if constexpr (std::is_same_v<T, f16>) return 0x1p-10;
  if constexpr (std::is_same_v<T, bf16>) return 0x1p-7;
  if constexpr (std::is_same_v<T, float>) return 0x1p-23;
  return 0x1p-52;
}

template <class T>
inline constexpr bool kFloat = std::is_same_v<T, f16> || std::is_same_v<T, bf16> ||
                               std::is_same_v<T, float> || std::is_same_v<T, double>;

// Real numbers; `stride` of them make an element.
template <class T>
void compare_floats(const T* a, const T* b, int64_t count, int64_t stride, double ulps,
                    Difference& d) {
  double largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (std::isfinite(double(a[i]))) largest = std::max(largest, std::fabs(double(a[i])));
  }
  const double allowed = ulps * epsilon<T>() * largest;
  int64_t last = -1;
  for (int64_t i = 0; i < count; ++i) {
    const auto x = double(a[i]), y = double(b[i]);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (i / stride != last) ++d.different;
    last = i / stride;
    double error = std::fabs(x - y);
    if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
    d.beyond |= error > allowed;
    if (error < d.absolute || (d.absolute > 0 && error == d.absolute)) continue;
    d.worst = i / stride;
    d.a = x;
    d.b = y;
    d.absolute = error;
    d.relative = error / std::max(std::fabs(x), std::fabs(y));
    d.ulps = std::isnan(x) || std::isnan(y) ? error : ulps_between(a[i], b[i]);
  }
}

template <class T>
void compare_integers(const T* a, const T* b, int64_t count, Difference& d) {
  for (int64_t i = 0; i < count; ++i) {
    if (a[i] == b[i]) continue;
    ++d.different;
    d.beyond = true;
    const auto x = double(a[i]), y = double(b[i]);
    const double error = std::max(std::fabs(x - y), std::numeric_limits<double>::min());
    if (error <= d.absolute) continue;
    d.worst = i;
    d.a = x;
    d.b = y;
    d.absolute = error;
    d.relative = error / std::max(std::fabs(x), std::fabs(y));
  }
}

}  // namespace

std::string Difference::to_string(const Dims& shape) const {
  if (!other.empty()) return "the other one has the shape " + dims_to_string(other);
  std::string index;
  int64_t rest = worst;
  for (size_t axis = shape.size(); axis-- > 0;) {
    index = fmt::format("{}{}{}", rest % shape[axis], index.empty() ? "" : ", ", index);
    rest /= shape[axis];
  }
  return fmt::format(
      "{} of {} elements differ, most at [{}]: {:.9g} against {:.9g} (absolute {:.3g}, relative "
      "{:.3g}, {:.6g} ulps)",
      different, elements, index, a, b, absolute, relative, ulps);
}

Difference compare(const Array& a, const Array& b, double ulps) {
  Difference d;
  d.elements = a.num_elements();
  if (a.shape() != b.shape()) {
    d.different = std::max<int64_t>(d.elements, 1);
    d.beyond = true;
    d.other = b.shape();
    return d;
  }
  if (is_packed(a.dtype())) {  // blocks of bits, whose numbers nobody compares
    if (!a.same_bits(b)) d.different = d.elements;
    d.beyond = d.different > 0;
    return d;
  }
  const Array x = a.dense(), y = b.dense();
  visit_dtype(a.dtype(), [&]<class T>() {
    const auto *p = x.data<T>().data(), *q = y.data<T>().data();
    if constexpr (kFloat<T>) {
      compare_floats(p, q, d.elements, 1, ulps, d);
    } else if constexpr (std::is_same_v<T, std::complex<float>>) {
      compare_floats(reinterpret_cast<const float*>(p), reinterpret_cast<const float*>(q),
                     2 * d.elements, 2, ulps, d);
    } else if constexpr (std::is_same_v<T, std::complex<double>>) {
      compare_floats(reinterpret_cast<const double*>(p), reinterpret_cast<const double*>(q),
                     2 * d.elements, 2, ulps, d);
    } else {
      compare_integers(p, q, d.elements, d);
    }
  });
  return d;
}

}  // namespace rlx::cli
