#include "rlx/ops/softmax_cross_entropy.h"

#include <cmath>
#include <limits>

#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"

namespace rlx::reference {
namespace {

struct Row {
  bool ignored;
  int64_t label;
  double max, log_sum;  // log of the sum of exp(x - max)
};

Row read_row(const Call& c, int64_t row) {
  const Tensor& x = c.operands[0];
  const int64_t classes = x.shape.back(), label = c.operands[1].i[size_t(row)];
  const auto& ignore = c.as<CrossEntropyAttrs>().ignore_index;
  if (ignore && label == *ignore) return {true, label, 0, 0};
  if (label < 0 || label >= classes) {
    user_error("the label {} of row {} is not in [0, {})", label, row, classes);
  }
  double m = -std::numeric_limits<double>::infinity(), total = 0;
  for (int64_t k = 0; k < classes; ++k) {
    const double v = x.f[size_t(row * classes + k)];
    if (v > m || std::isnan(v)) m = v;
  }
  for (int64_t k = 0; k < classes; ++k) total += std::exp(x.f[size_t(row * classes + k)] - m);
  return {false, label, m, std::log(total)};
}

void run_forward(const Call& c) {
  const Tensor& x = c.operands[0];
  for (int64_t row = 0; row < c.operands[1].size(); ++row) {
    const Row r = read_row(c, row);
    if (r.ignored) continue;
    const double picked = x.f[size_t(row * x.shape.back() + r.label)] - r.max;
    c.results[0].f[size_t(row)] = r.log_sum - picked;
  }
}

void run_backward(const Call& c) {
  const Tensor& x = c.operands[0];
  const int64_t classes = x.shape.back();
  for (int64_t row = 0; row < c.operands[1].size(); ++row) {
    const Row r = read_row(c, row);
    if (r.ignored) continue;
    for (int64_t k = 0; k < classes; ++k) {
      const auto at = size_t(row * classes + k);
      const double p = std::exp(x.f[at] - r.max - r.log_sum);
      c.results[0].f[at] = (p - (k == r.label ? 1 : 0)) * c.operands[2].f[size_t(row)];
    }
  }
}

}  // namespace

RLX_DEFINE_REFERENCE(SoftmaxCrossEntropyWithLogits) = run_forward;
RLX_DEFINE_REFERENCE(SoftmaxCrossEntropyBackward) = run_backward;

}  // namespace rlx::reference
