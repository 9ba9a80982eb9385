#include "rlx/backend/reference/storage.h"

namespace rlx::reference {
namespace {

void matmul(const Call& call) {
  Tensor x = call.operands[0], y = call.operands[1];
  const bool row = x.shape.size() == 1, column = y.shape.size() == 1;
  if (row) x.shape.insert(x.shape.begin(), 1);
  if (column) y.shape.push_back(1);
  const int64_t m = x.shape[x.shape.size() - 2], k = x.shape.back(), n = y.shape.back();
  Dims batch = call.results[0].shape;
  batch.resize(batch.size() - !row - !column);
  // Strides of the leading axes only.
  Tensor x_lead, y_lead;
  x_lead.shape.assign(x.shape.begin(), x.shape.end() - 2);
  y_lead.shape.assign(y.shape.begin(), y.shape.end() - 2);
  const Dims xs = broadcast_strides(x_lead, batch), ys = broadcast_strides(y_lead, batch);
  with_numbers(x, y, call.results[0], [&](const auto* a, const auto* b, auto* out) {
    for_each_index(batch, [&](int64_t flat, const Dims& index) {
      const auto* pa = a + offset_of(index, xs) * m * k;
      const auto* pb = b + offset_of(index, ys) * k * n;
      auto* po = out + flat * m * n;
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t p = 0; p < k; ++p) {
          for (int64_t j = 0; j < n; ++j) po[i * n + j] += pa[i * k + p] * pb[p * n + j];
        }
      }
    });
  });
}

}  // namespace

RLX_DEFINE_REFERENCE(MatMul) = matmul;

}  // namespace rlx::reference
