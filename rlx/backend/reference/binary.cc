#include "rlx/ops/binary.h"

#include <cmath>
#include <limits>

#include "rlx/backend/reference/elementwise.h"
#include "rlx/base/error.h"

namespace rlx::reference {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double maximum(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return kNaN;
  if (a == 0 && b == 0) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

double minimum(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return kNaN;
  if (a == 0 && b == 0) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

double of_floats(BinaryKind kind, double a, double b) {
  switch (kind) {
    case BinaryKind::kAdd:
      return a + b;
    case BinaryKind::kSub:
      return a - b;
    case BinaryKind::kMul:
      return a * b;
    case BinaryKind::kDiv:
      return a / b;
    case BinaryKind::kMax:
      return maximum(a, b);
    case BinaryKind::kMin:
      return minimum(a, b);
    case BinaryKind::kPow:
      return std::pow(a, b);
    case BinaryKind::kMod:
      return std::fmod(a, b);
    case BinaryKind::kAtan2:
      return std::atan2(a, b);
    default:
      internal_error("Binary {} of floats", enum_name(kind));
  }
}

// What an integer dtype adds to the bits: sign and width. Values are in 64 bits already, extended
// by sign or zeros.
struct IntegerType {
  bool is_signed;
  int bits;
};

bool less(IntegerType t, int64_t a, int64_t b) {
  return t.is_signed ? a < b : uint64_t(a) < uint64_t(b);
}

int64_t quotient(IntegerType t, int64_t a, int64_t b) {
  if (b == 0) return -1;
  if (!t.is_signed) return int64_t(uint64_t(a) / uint64_t(b));
  if (b == -1) return int64_t(0 - uint64_t(a));
  return a / b;
}

int64_t remainder(IntegerType t, int64_t a, int64_t b) {
  if (b == 0) return a;
  if (!t.is_signed) return int64_t(uint64_t(a) % uint64_t(b));
  return b == -1 ? 0 : a % b;
}

int64_t power(IntegerType t, int64_t base, int64_t exponent) {
  if (t.is_signed && exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  uint64_t result = 1, square = uint64_t(base);
  for (auto e = uint64_t(exponent); e != 0; e >>= 1) {
    if (e & 1) result *= square;
    square *= square;
  }
  return int64_t(result);
}

// A negative count is a large one when read as unsigned.
bool exceeds_width(IntegerType t, int64_t count) { return count < 0 || count >= t.bits; }

int64_t shift_left(IntegerType t, int64_t a, int64_t count) {
  return exceeds_width(t, count) ? 0 : int64_t(uint64_t(a) << count);
}

int64_t shift_right(IntegerType t, int64_t a, int64_t count) {
  if (exceeds_width(t, count)) return t.is_signed && a < 0 ? -1 : 0;
  return t.is_signed ? a >> count : int64_t(uint64_t(a) >> count);
}

int64_t of_integers(BinaryKind kind, IntegerType t, int64_t a, int64_t b) {
  const auto ua = uint64_t(a), ub = uint64_t(b);
  switch (kind) {
    case BinaryKind::kAdd:
      return int64_t(ua + ub);
    case BinaryKind::kSub:
      return int64_t(ua - ub);
    case BinaryKind::kMul:
      return int64_t(ua * ub);
    case BinaryKind::kDiv:
      return quotient(t, a, b);
    case BinaryKind::kMax:
      return less(t, a, b) ? b : a;
    case BinaryKind::kMin:
      return less(t, a, b) ? a : b;
    case BinaryKind::kPow:
      return power(t, a, b);
    case BinaryKind::kMod:
      return remainder(t, a, b);
    case BinaryKind::kBitAnd:
      return a & b;
    case BinaryKind::kBitOr:
      return a | b;
    case BinaryKind::kBitXor:
      return a ^ b;
    case BinaryKind::kShl:
      return shift_left(t, a, b);
    case BinaryKind::kShr:
      return shift_right(t, a, b);
    case BinaryKind::kAtan2:
      break;
  }
  internal_error("Binary {} of integers", enum_name(kind));
}

std::complex<double> of_complexes(BinaryKind kind, std::complex<double> a, std::complex<double> b) {
  switch (kind) {
    case BinaryKind::kAdd:
      return a + b;
    case BinaryKind::kSub:
      return a - b;
    case BinaryKind::kMul:
      return a * b;
    case BinaryKind::kDiv:
      return a / b;
    default:
      internal_error("Binary {} of complex numbers", enum_name(kind));
  }
}

void binary(const Call& call) {
  const BinaryKind kind = call.as<BinaryAttrs>().kind;
  const Tensor &x = call.operands[0], &y = call.operands[1];
  Tensor& z = call.results[0];
  const IntegerType type{class_of(x.dtype) == DTypeClass::kSigned, int(8 * size_of(x.dtype))};
  for_each_broadcast(call, [&](size_t k, const std::vector<size_t>& at) {
    if (!z.f.empty()) z.f[k] = of_floats(kind, x.f[at[0]], y.f[at[1]]);
    if (!z.i.empty()) z.i[k] = of_integers(kind, type, x.i[at[0]], y.i[at[1]]);
    if (!z.c.empty()) z.c[k] = of_complexes(kind, x.c[at[0]], y.c[at[1]]);
  });
}

}  // namespace

RLX_DEFINE_REFERENCE(Binary) = binary;

}  // namespace rlx::reference
