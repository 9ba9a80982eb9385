// Custom operators have no meaning of their own; the oracle knows those that samples call, by name.
#include "rlx/ops/custom.h"

#include <algorithm>

#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"

namespace rlx::reference {
namespace {

void affine(const Call& c) {
  const std::string& bytes = c.as<CustomAttrs>().attributes;
  const int a = static_cast<signed char>(bytes.at(0)), b = static_cast<signed char>(bytes.at(1));
  const Tensor& x = c.operands[0];
  Tensor& y = c.results[0];
  const bool is_bool = x.dtype == DType::kBool;
  for (size_t k = 0; k < x.f.size(); ++k) y.f[k] = a * x.f[k] + b;
  for (size_t k = 0; k < x.c.size(); ++k) y.c[k] = double(a) * x.c[k] + double(b);
  for (size_t k = 0; k < x.i.size(); ++k) {
    y.i[k] = is_bool ? x.i[k] : int64_t(uint64_t(a) * uint64_t(x.i[k]) + uint64_t(b));
  }
}

void scale_norm(const Call& c) {
  const std::vector<double>& x = c.operands[0].f;
  for (size_t k = 0; k < x.size(); ++k) {
    c.results[0].f[k] = c.operands[1].f[0] * x[k];
    c.results[1].f[0] += x[k] * x[k];
  }
}

void matches(const Call& c) {
  std::vector<int64_t>& counts = c.results[0].i;
  const auto count = [&](const auto& x) {
    for (size_t k = 0; k < x.size(); ++k) counts[k] = std::count(x.begin(), x.end(), x[k]);
  };
  count(c.operands[0].f);
  count(c.operands[0].i);
  count(c.operands[0].c);
}

void ramp(const Call& c) {
  Tensor& y = c.results[0];
  for (size_t k = 0; k < y.f.size(); ++k) y.f[k] = double(k);
  for (size_t k = 0; k < y.c.size(); ++k) y.c[k] = double(k);
  for (size_t k = 0; k < y.i.size(); ++k) y.i[k] = y.dtype == DType::kBool ? k > 0 : int64_t(k);
}

void run(const Call& c) {
  const std::string& name = c.as<CustomAttrs>().name;
  if (name == "sample.affine") return affine(c);
  if (name == "sample.scale_norm") return scale_norm(c);
  if (name == "sample.matches") return matches(c);
  if (name == "sample.ramp") return ramp(c);
  fail(ErrorKind::kUnsupported, "the reference does not know the custom operator '{}'", name);
}

}  // namespace

RLX_DEFINE_REFERENCE(Custom) = run;

}  // namespace rlx::reference
