#include "rlx/ops/softmax.h"

#include <cmath>
#include <limits>

#include "rlx/backend/reference/reference.h"

namespace rlx::reference {
namespace {

void run(const Call& c) {
  const Tensor& x = c.operands[0];
  Tensor& y = c.results[0];
  const auto axis = size_t(c.as<SoftmaxAttrs>().axis);
  const int64_t n = x.shape[axis], step = dense_strides(x.shape)[axis];
  for_each_index(x.shape, [&](int64_t flat, const Dims& index) {
    const int64_t first = flat - index[axis] * step;
    double m = -std::numeric_limits<double>::infinity(), total = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double v = x.f[size_t(first + i * step)];
      if (v > m || std::isnan(v)) m = v;
    }
    for (int64_t i = 0; i < n; ++i) total += std::exp(x.f[size_t(first + i * step)] - m);
    y.f[size_t(flat)] = std::exp(x.f[size_t(flat)] - m) / total;
  });
}

}  // namespace

RLX_DEFINE_REFERENCE(Softmax) = run;

}  // namespace rlx::reference
