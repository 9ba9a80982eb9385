#include "rlx/testing/compare.h"

#include <algorithm>
#include <cmath>

#include "rlx/base/error.h"

namespace rlx {
namespace {

struct Format {
  int mantissa;      // stored bits
  int min_exponent;  // of normal numbers
  double max;
};

Format format_of(DType t) {
  switch (t) {
    case DType::kF16:
      return {10, -14, 65504};
    case DType::kBF16:
      return {7, -126, 0x1.FEp127};
    case DType::kF64:
    case DType::kC128:
      return {52, -1022, 0x1.FFFFFFFFFFFFFp1023};
    default:
      return {23, -126, 0x1.FFFFFEp127};
  }
}

double spacing(double x, const Format& f) {
  const int e = x == 0 ? f.min_exponent : std::max(std::ilogb(std::fabs(x)), f.min_exponent);
  return std::ldexp(1.0, e - f.mantissa);
}

struct Bound {
  Format storage, wide;
  double sums;  // absolute, from the reduction
  double extra_ulps;
  double of(double x) const {
    // Half an ulp for the one rounding, and a hair for 16-bit values that were rounded to f32
    // first.
    return 0.501 * spacing(x, storage) + extra_ulps * spacing(x, wide) + sums;
  }
};

bool component_ok(double got, double expected, const Bound& b, double& error) {
  error = 0;
  if (std::isnan(expected)) return std::isnan(got);
  if (std::isnan(got)) return false;
  const double limit = b.storage.max + b.of(b.storage.max);
  if (std::isinf(got)) {
    return std::signbit(got) == std::signbit(expected) &&
           (std::isinf(expected) || std::fabs(expected) + b.of(expected) >= b.storage.max);
  }
  if (std::isinf(expected) || std::fabs(expected) > limit) {
    error = INFINITY;
    return false;
  }
  error = std::fabs(got - expected);
  return error <= b.of(expected);
}

double largest(const reference::Tensor& t) {
  double m = 0;
  for (double x : t.f) {
    if (std::isfinite(x)) m = std::max(m, std::fabs(x));
  }
  for (auto x : t.c) {
    if (std::isfinite(std::abs(x))) m = std::max(m, std::abs(x));
  }
  return m;
}

std::string at(const Dims& shape, int64_t flat) {
  Dims index(shape.size());
  for (size_t a = shape.size(); a-- > 0;) {
    index[a] = flat % shape[a];
    flat /= shape[a];
  }
  return dims_to_string(index);
}

}  // namespace

std::string compare(const Array& got, const reference::Tensor& expected, const Tolerance& t) {
  if (got.dtype() != expected.dtype || got.shape() != expected.shape) {
    return fmt::format("type {} instead of {}{}", got.type().to_string(), to_string(expected.dtype),
                       dims_to_string(expected.shape));
  }
  const reference::Tensor g = reference::widen(got);
  const DType wide = accumulation_dtype(got.dtype());
  Bound bound{format_of(got.dtype()), format_of(wide), 0, t.extra_ulps};
  const double magnitude = t.scale > 0 ? t.scale : largest(expected);
  if (t.reduction > 1) {
    const double eps = std::ldexp(1.0, -1 - bound.wide.mantissa);
    bound.sums = eps * (2 + 2 * std::sqrt(double(t.reduction))) * magnitude;
  }
  if (is_packed(expected.dtype)) {
    const auto differ = std::mismatch(g.i.begin(), g.i.end(), expected.i.begin(), expected.i.end());
    if (differ.first == g.i.end()) return {};
    return fmt::format("byte {} of the blocks: got {}, expected {}", differ.first - g.i.begin(),
                       *differ.first, *differ.second);
  }
  for (int64_t k = 0; k < expected.size(); ++k) {
    const auto i = size_t(k);
    if (!expected.i.empty() && g.i[i] != expected.i[i]) {
      return fmt::format("at {}: got {}, expected {}", at(expected.shape, k), g.i[i],
                         expected.i[i]);
    }
    double error = 0;
    if (!expected.f.empty() && !component_ok(g.f[i], expected.f[i], bound, error)) {
      return fmt::format("at {}: got {:.9g}, expected {:.9g}: error {:.3g} of {:.3g} allowed",
                         at(expected.shape, k), g.f[i], expected.f[i], error,
                         bound.of(expected.f[i]));
    }
    if (!expected.c.empty()) {
      // A complex result is judged by its modulus: parts may cancel.
      Bound c = bound;
      c.sums += (1 + t.extra_ulps) * spacing(std::abs(expected.c[i]), bound.wide);
      double e2 = 0;
      if (!component_ok(g.c[i].real(), expected.c[i].real(), c, error) ||
          !component_ok(g.c[i].imag(), expected.c[i].imag(), c, e2)) {
        return fmt::format("at {}: got ({:.9g}, {:.9g}), expected ({:.9g}, {:.9g})",
                           at(expected.shape, k), g.c[i].real(), g.c[i].imag(),
                           expected.c[i].real(), expected.c[i].imag());
      }
    }
  }
  return {};
}

std::string compare_wide(const reference::Tensor& a, const reference::Tensor& b, double relative) {
  if (a.dtype != b.dtype || a.shape != b.shape) {
    return fmt::format("type {}{} against {}{}", to_string(a.dtype), dims_to_string(a.shape),
                       to_string(b.dtype), dims_to_string(b.shape));
  }
  // Below 1e-12 everything is noise of differences.
  const double magnitude = std::max({largest(a), largest(b), 1e-12});
  const auto near = [&](double x, double y) {
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
    if (std::isinf(x) || std::isinf(y)) return x == y;
    return std::fabs(x - y) <= relative * magnitude;
  };
  for (size_t i = 0; i < std::max({a.f.size(), a.i.size(), a.c.size()}); ++i) {
    const auto k = int64_t(i);
    const bool same = !a.f.empty() ? near(a.f[i], b.f[i])
                      : !a.c.empty()
                          ? near(a.c[i].real(), b.c[i].real()) && near(a.c[i].imag(), b.c[i].imag())
                          : a.i[i] == b.i[i];
    if (same) continue;
    const auto show = [&](const reference::Tensor& t) {
      return !t.f.empty()   ? fmt::format("{:.12g}", t.f[i])
             : !t.c.empty() ? fmt::format("({:.12g}, {:.12g})", t.c[i].real(), t.c[i].imag())
                            : fmt::format("{}", t.i[i]);
    };
    return fmt::format("at {}: {} against {} (largest {:.3g})", at(a.shape, k), show(a), show(b),
                       magnitude);
  }
  return {};
}

}  // namespace rlx
