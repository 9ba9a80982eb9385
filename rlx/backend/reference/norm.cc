// LayerNorm, RmsNorm and their gradients.
#include "rlx/ops/norm.h"

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
  const auto& attrs = c.as<NormAttrs>();
  const auto axis = size_t(attrs.axis), batch_axes = size_t(attrs.batch_axes);
  for (size_t a = 0; a < shape.size(); ++a) {
    (a < axis ? r.count : r.length) *= shape[a];
    if (a >= batch_axes && a < axis) r.per_group *= shape[a];
  }
  return r;
}

struct Moments {
  double mean = 0, inverse = 0;
};

// About the mean (LayerNorm) or about 0 (RmsNorm).
template <bool kCentered>
Moments moments(const double* x, int64_t n, double eps) {
  Moments m;
  if (kCentered) {
    for (int64_t i = 0; i < n; ++i) m.mean += x[i];
    m.mean /= double(n);
  }
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += (x[i] - m.mean) * (x[i] - m.mean);
  m.inverse = 1 / std::sqrt(squares / double(n) + eps);
  return m;
}

template <bool kCentered>
void run_forward(const Call& c) {
  const Rows rows = rows_of(c);
  for (int64_t row = 0; row < rows.count; ++row) {
    const double* x = c.operands[0].f.data() + row * rows.length;
    double* y = c.results[0].f.data() + row * rows.length;
    const Moments m = moments<kCentered>(x, rows.length, c.as<NormAttrs>().eps);
    for (int64_t i = 0; i < rows.length; ++i) {
      y[i] = (x[i] - m.mean) * m.inverse;
      if (c.operands.size() > 1) y[i] *= c.operands[1].f[size_t(rows.affine(row) + i)];
      if (c.operands.size() > 2) y[i] += c.operands[2].f[size_t(rows.affine(row) + i)];
    }
  }
}

template <bool kCentered>
void run_backward(const Call& c) {
  const Rows rows = rows_of(c);
  const auto n = double(rows.length);
  for (int64_t row = 0; row < rows.count; ++row) {
    const double* x = c.operands[0].f.data() + row * rows.length;
    const double* dy = c.operands.back().f.data() + row * rows.length;
    const Moments m = moments<kCentered>(x, rows.length, c.as<NormAttrs>().eps);
    const auto x_hat = [&](int64_t i) { return (x[i] - m.mean) * m.inverse; };
    const auto g = [&](int64_t i) {
      return c.operands.size() == 3 ? dy[i] * c.operands[1].f[size_t(rows.affine(row) + i)] : dy[i];
    };
    double sum_g = 0, sum_gx = 0;
    for (int64_t i = 0; i < rows.length; ++i) {
      if (kCentered) sum_g += g(i);
      sum_gx += g(i) * x_hat(i);
    }
    for (int64_t i = 0; i < rows.length; ++i) {
      c.results[0].f[size_t(row * rows.length + i)] =
          m.inverse * (g(i) - sum_g / n - x_hat(i) * sum_gx / n);
      c.results[1].f[size_t(rows.affine(row) + i)] += dy[i] * x_hat(i);
      c.results[2].f[size_t(rows.affine(row) + i)] += dy[i];
    }
  }
}

}  // namespace

RLX_DEFINE_REFERENCE(LayerNorm) = run_forward<true>;
RLX_DEFINE_REFERENCE(LayerNormBackwardInput) = run_backward<true>;
RLX_DEFINE_REFERENCE(RmsNorm) = run_forward<false>;
RLX_DEFINE_REFERENCE(RmsNormBackwardInput) = run_backward<false>;

}  // namespace rlx::reference
