#include <cmath>
#include <numbers>

#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"
#include "rlx/ops/activation.h"

namespace rlx::reference {
namespace {

constexpr double kPi = std::numbers::pi;

double sigmoid(double x) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  return std::exp(x) / (1 + std::exp(x));
}

// s (1 - s), in a form that is exact in both tails.
double sigmoid_slope(double x) {
  const double e = std::exp(-std::fabs(x));
  return e / ((1 + e) * (1 + e));
}

// x times a factor that vanishes at both infinities faster than x grows.
double gated(double x, double gate) { return gate == 0 ? 0 : x * gate; }

double gelu_slope(double x) {
  const double distribution = 0.5 * std::erfc(-x / std::numbers::sqrt2);
  return distribution + gated(x, std::exp(-0.5 * x * x) / std::sqrt(2 * kPi));
}

double gelu_approx_slope(double x) {
  const double c = 2 * std::sqrt(2 / kPi);
  const double u = c * (x + 0.044715 * x * x * x);
  const double slope = sigmoid_slope(u);
  if (slope == 0) return sigmoid(u);
  return sigmoid(u) + x * slope * c * (1 + 3 * 0.044715 * x * x);
}

double mish_slope(double x) {
  const double sp = (x > 0 ? x : 0) + std::log1p(std::exp(-std::fabs(x)));
  const double sech = 1 / std::cosh(sp);
  return std::tanh(sp) + gated(x, sech * sech * sigmoid(x));
}

double hard_swish_slope(double x) {
  if (x < -3) return 0;
  if (x > 3) return 1;
  return (2 * x + 3) / 6;
}

double tanh_slope(double x) {
  const double sech = 1 / std::cosh(x);
  return sech * sech;
}

double slope(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kGelu:
      return gelu_slope(x);
    case ActivationKind::kGeluApprox:
      return gelu_approx_slope(x);
    case ActivationKind::kSilu:
      return sigmoid(x) + gated(x, sigmoid_slope(x));
    case ActivationKind::kSigmoid:
      return sigmoid_slope(x);
    case ActivationKind::kTanh:
      return tanh_slope(x);
    case ActivationKind::kExp:
      return std::exp(x);
    case ActivationKind::kLog:
      return 1 / x;
    case ActivationKind::kSqrt:
      return 0.5 / std::sqrt(x);
    case ActivationKind::kRsqrt:
      return -0.5 / (x * std::sqrt(x));
    case ActivationKind::kAbs:
      return std::isnan(x) ? x : double(x > 0) - double(x < 0);
    case ActivationKind::kSin:
      return std::cos(x);
    case ActivationKind::kCos:
      return -std::sin(x);
    case ActivationKind::kTan:
      return 1 + std::tan(x) * std::tan(x);
    case ActivationKind::kAtan:
      return 1 / (1 + x * x);
    case ActivationKind::kRecip:
      return -1 / (x * x);
    case ActivationKind::kSoftplus:
      return sigmoid(x);
    case ActivationKind::kElu:
      return x > 0 ? 1 : std::exp(x);
    case ActivationKind::kErf:
      return 2 / std::sqrt(kPi) * std::exp(-x * x);
    case ActivationKind::kHardSwish:
      return hard_swish_slope(x);
    case ActivationKind::kHardSigmoid:
      return std::fabs(x) < 3 ? 1.0 / 6 : 0;
    case ActivationKind::kMish:
      return mish_slope(x);
    case ActivationKind::kSoftsign:
      return 1 / ((1 + std::fabs(x)) * (1 + std::fabs(x)));
    case ActivationKind::kLogSigmoid:
      return sigmoid(-x);
    default:
      internal_error("ActivationBackward {} is no product", enum_name(kind));
  }
}

double of_float(const ActivationAttrs& a, double x, double dy) {
  switch (a.kind) {
    case ActivationKind::kRelu:
      return x <= 0 ? 0 : dy;
    case ActivationKind::kNeg:
      return -dy;
    case ActivationKind::kRound:
      return a.straight_through ? dy : 0;
    case ActivationKind::kFloor:
    case ActivationKind::kCeil:
    case ActivationKind::kSign:
      return 0;
    default:
      return dy * slope(a.kind, x);
  }
}

std::complex<double> of_complex(const ActivationAttrs& a, std::complex<double> x,
                                std::complex<double> dy) {
  switch (a.kind) {
    case ActivationKind::kNeg:
      return -dy;
    case ActivationKind::kExp:
      return dy * std::conj(std::exp(x));
    case ActivationKind::kRecip:
      return -dy / std::conj(x * x);
    default:
      internal_error("ActivationBackward {} of complex numbers", enum_name(a.kind));
  }
}

void activation_backward(const Call& call) {
  const auto& a = call.as<ActivationAttrs>();
  const Tensor &x = call.operands[0], &dy = call.operands[1];
  Tensor& dx = call.results[0];
  for (size_t k = 0; k < x.f.size(); ++k) dx.f[k] = of_float(a, x.f[k], dy.f[k]);
  for (size_t k = 0; k < x.c.size(); ++k) dx.c[k] = of_complex(a, x.c[k], dy.c[k]);
}

void relu_backward(const Call& call) {
  const Tensor &x = call.operands[0], &dy = call.operands[1];
  Tensor& dx = call.results[0];
  const bool is_signed = class_of(x.dtype) == DTypeClass::kSigned;
  for (size_t k = 0; k < x.f.size(); ++k) dx.f[k] = x.f[k] <= 0 ? 0 : dy.f[k];
  for (size_t k = 0; k < x.i.size(); ++k) {
    const bool off = x.i[k] == 0 || (is_signed && x.i[k] < 0);
    dx.i[k] = off ? 0 : dy.i[k];
  }
}

}  // namespace

RLX_DEFINE_REFERENCE(ReluBackward) = relu_backward;
RLX_DEFINE_REFERENCE(ActivationBackward) = activation_backward;

}  // namespace rlx::reference
