#include "rlx/ops/activation.h"

#include <cmath>
#include <numbers>

#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"

namespace rlx::reference {
namespace {

double sigmoid(double x) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  return std::exp(x) / (1 + std::exp(x));
}

double softplus(double x) { return (x > 0 ? x : 0) + std::log1p(std::exp(-std::fabs(x))); }

double clamp(double x, double low, double high) { return x < low ? low : (x > high ? high : x); }

// x times a factor that vanishes at -infinity faster than x grows.
double gated(double x, double gate) { return x < 0 && gate == 0 ? -0.0 : x * gate; }

// In the lower tail the error of the argument is multiplied by its size: more than 64 bits there.
double gelu(double x) {
  const auto wide = static_cast<long double>(x);
  return gated(x, double(0.5L * std::erfc(-wide / std::numbers::sqrt2_v<long double>)));
}

double gelu_approx(double x) {
  const auto wide = static_cast<long double>(x);
  const long double c = std::sqrt(2 / std::numbers::pi_v<long double>);
  const long double u = c * (wide + 0.044715L * wide * wide * wide);
  return gated(x, double(1 / (1 + std::exp(-2 * u))));  // (1 + tanh u) / 2
}

double of_float(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kGelu:
      return gelu(x);
    case ActivationKind::kGeluApprox:
      return gelu_approx(x);
    case ActivationKind::kSilu:
      return gated(x, sigmoid(x));
    case ActivationKind::kRelu:
      return x <= 0 ? 0 : x;
    case ActivationKind::kSigmoid:
      return sigmoid(x);
    case ActivationKind::kTanh:
      return std::tanh(x);
    case ActivationKind::kExp:
      return std::exp(x);
    case ActivationKind::kLog:
      return std::log(x);
    case ActivationKind::kSqrt:
      return std::sqrt(x);
    case ActivationKind::kRsqrt:
      return 1 / std::sqrt(x);
    case ActivationKind::kNeg:
      return -x;
    case ActivationKind::kAbs:
      return std::fabs(x);
    case ActivationKind::kSin:
      return std::sin(x);
    case ActivationKind::kCos:
      return std::cos(x);
    case ActivationKind::kTan:
      return std::tan(x);
    case ActivationKind::kAtan:
      return std::atan(x);
    case ActivationKind::kRecip:
      return 1 / x;
    case ActivationKind::kRound:
      return std::nearbyint(x);
    case ActivationKind::kFloor:
      return std::floor(x);
    case ActivationKind::kCeil:
      return std::ceil(x);
    case ActivationKind::kSign:
      return std::isnan(x) ? x : double(x > 0) - double(x < 0);
    case ActivationKind::kSoftplus:
      return softplus(x);
    case ActivationKind::kElu:
      return x > 0 ? x : std::expm1(x);
    case ActivationKind::kErf:
      return std::erf(x);
    case ActivationKind::kHardSwish:
      return gated(x, clamp(x + 3, 0, 6) / 6);
    case ActivationKind::kHardSigmoid:
      return clamp(x + 3, 0, 6) / 6;
    case ActivationKind::kMish:
      return gated(x, std::tanh(softplus(x)));
    case ActivationKind::kSoftsign:
      return std::isinf(x) ? std::copysign(1.0, x) : x / (1 + std::fabs(x));
    case ActivationKind::kLogSigmoid:
      return -softplus(-x);
  }
  __builtin_unreachable();
}

int64_t of_integer(ActivationKind kind, bool is_signed, int64_t x) {
  const bool negative = is_signed && x < 0;
  switch (kind) {
    case ActivationKind::kNeg:
      return int64_t(0 - uint64_t(x));
    case ActivationKind::kAbs:
      return negative ? int64_t(0 - uint64_t(x)) : x;
    case ActivationKind::kSign:
      return negative ? -1 : x != 0;
    case ActivationKind::kRelu:
      return negative ? 0 : x;
    case ActivationKind::kRound:
    case ActivationKind::kFloor:
    case ActivationKind::kCeil:
      return x;
    default:
      internal_error("Activation {} of integers", enum_name(kind));
  }
}

std::complex<double> of_complex(ActivationKind kind, std::complex<double> x) {
  switch (kind) {
    case ActivationKind::kNeg:
      return -x;
    case ActivationKind::kRecip:
      return 1.0 / x;
    case ActivationKind::kExp:
      return std::exp(x);
    default:
      internal_error("Activation {} of complex numbers", enum_name(kind));
  }
}

void activation(const Call& call) {
  const ActivationKind kind = call.as<ActivationAttrs>().kind;
  const Tensor& x = call.operands[0];
  Tensor& y = call.results[0];
  const bool is_signed = class_of(x.dtype) == DTypeClass::kSigned;
  for (size_t k = 0; k < x.f.size(); ++k) y.f[k] = of_float(kind, x.f[k]);
  for (size_t k = 0; k < x.i.size(); ++k) y.i[k] = of_integer(kind, is_signed, x.i[k]);
  for (size_t k = 0; k < x.c.size(); ++k) y.c[k] = of_complex(kind, x.c[k]);
}

}  // namespace

RLX_DEFINE_REFERENCE(Activation) = activation;

}  // namespace rlx::reference
