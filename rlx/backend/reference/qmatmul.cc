#include "rlx/ops/qmatmul.h"

#include <algorithm>
#include <cmath>

#include "rlx/backend/reference/reference.h"

namespace rlx::reference {
namespace {

void qmatmul(const Call& call) {
  const auto& a = call.as<QMatMulAttrs>();
  const Tensor &x = call.operands[0], &w = call.operands[1];
  const int64_t k = w.shape[0], n = w.shape[1], rows = num_elements(call.results[0].shape);
  const auto of_column = [](const auto& list, int64_t j) {
    return list[list.size() == 1 ? 0 : size_t(j)];
  };
  for (int64_t at = 0; at < rows; ++at) {
    const int64_t i = at / n, j = at % n;
    int64_t sum = call.operands.size() > 2 ? call.operands[2].i[size_t(j)] : 0;
    for (int64_t p = 0; p < k; ++p) {
      sum += (x.i[size_t(i * k + p)] - a.x_zero_point) *
             (w.i[size_t(p * n + j)] - of_column(a.w_zero_points, j));
    }
    // The multiplication is one of f32.
    const float scaled = float(int32_t(uint32_t(sum))) * float(of_column(a.multipliers, j));
    const double code = std::nearbyint(double(scaled)) + double(a.out_zero_point);
    call.results[0].i[size_t(at)] = int64_t(std::clamp(code, -128.0, 127.0));
  }
}

}  // namespace

RLX_DEFINE_REFERENCE(QMatMul) = qmatmul;

}  // namespace rlx::reference
