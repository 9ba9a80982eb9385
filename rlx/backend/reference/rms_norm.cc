#include "rlx/ops/rms_norm.h"

#include <cmath>

#include "rlx/backend/reference/reference.h"

namespace rlx::reference {
namespace {

struct Rows {
  int64_t count = 1, length = 1;
  int64_t per_group = 1;  // rows that share gamma and beta
  int64_t affine(int64_t row) const { return row / per_group * length; }
};

Rows rows_of(const Call& c) {
  Rows r;
  const Dims& shape = c.operands[0].shape;
  const auto& attrs = c.as<RmsNormAttrs>();
  for (int64_t a = 0; a < int64_t(shape.size()); ++a) {
    (a < attrs.axis ? r.count : r.length) *= shape[size_t(a)];
    if (a >= attrs.batch_axes && a < attrs.axis) r.per_group *= shape[size_t(a)];
  }
  return r;
}

double inverse_rms(const double* x, int64_t n, double eps) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += x[i] * x[i];
  return 1 / std::sqrt(squares / double(n) + eps);
}

void run_forward(const Call& c) {
  const Rows rows = rows_of(c);
  for (int64_t row = 0; row < rows.count; ++row) {
    const double* x = c.operands[0].f.data() + row * rows.length;
    double* y = c.results[0].f.data() + row * rows.length;
    const double r = inverse_rms(x, rows.length, c.as<RmsNormAttrs>().eps);
    for (int64_t i = 0; i < rows.length; ++i) {
      y[i] = x[i] * r;
      if (c.operands.size() > 1) y[i] *= c.operands[1].f[size_t(rows.affine(row) + i)];
      if (c.operands.size() > 2) y[i] += c.operands[2].f[size_t(rows.affine(row) + i)];
    }
  }
}

// As stated for the derivative of x / rms: dx = r * (g - x * r^2 * mean(g * x)).
void run_backward(const Call& c) {
  const Rows rows = rows_of(c);
  for (int64_t row = 0; row < rows.count; ++row) {
    const double* x = c.operands[0].f.data() + row * rows.length;
    const double* dy = c.operands.back().f.data() + row * rows.length;
    const double r = inverse_rms(x, rows.length, c.as<RmsNormAttrs>().eps);
    const auto g = [&](int64_t i) {
      return c.operands.size() == 3 ? dy[i] * c.operands[1].f[size_t(rows.affine(row) + i)] : dy[i];
    };
    double mean_gx = 0;
    for (int64_t i = 0; i < rows.length; ++i) mean_gx += g(i) * x[i] / double(rows.length);
    for (int64_t i = 0; i < rows.length; ++i) {
      c.results[0].f[size_t(row * rows.length + i)] = r * (g(i) - x[i] * r * r * mean_gx);
      c.results[1].f[size_t(rows.affine(row) + i)] += dy[i] * x[i] * r;
      c.results[2].f[size_t(rows.affine(row) + i)] += dy[i];
    }
  }
}

}  // namespace

RLX_DEFINE_REFERENCE(RmsNorm) = run_forward;
RLX_DEFINE_REFERENCE(RmsNormBackwardInput) = run_backward;

}  // namespace rlx::reference
