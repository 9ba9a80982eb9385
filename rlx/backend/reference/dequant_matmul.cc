#include "rlx/ops/dequant_matmul.h"

#include "rlx/backend/reference/packed.h"

namespace rlx::reference {
namespace {

// What the left operand becomes in blocks of q8_0.
std::vector<double> through_blocks(const Tensor& x) {
  Tensor blocks(DType::kQ8_0, x.shape);
  encode({x.f.begin(), x.f.end()}, blocks);
  const std::vector<float> values = decoded(blocks);
  return {values.begin(), values.end()};
}

void dequant_matmul(const Call& call) {
  const Tensor &x = call.operands[0], &w = call.operands[1];
  Tensor& y = call.results[0];
  const bool row = x.shape.size() == 1;
  const int64_t k = x.shape.back(), n = w.shape[w.shape.size() - 2];
  const int64_t m = row ? 1 : x.shape[x.shape.size() - 2];
  const bool blocks = call.as<DequantMatMulAttrs>().activations == MatMulActivations::kInt8Block;
  const std::vector<double> left = blocks ? through_blocks(x) : x.f;
  const std::vector<float> right = decoded(w);
  Dims batch = y.shape;
  batch.resize(batch.size() - (row ? 1 : 2));
  Tensor x_lead, w_lead;  // leading axes only
  if (!row) x_lead.shape.assign(x.shape.begin(), x.shape.end() - 2);
  w_lead.shape.assign(w.shape.begin(), w.shape.end() - 2);
  const Dims xs = broadcast_strides(x_lead, batch), ws = broadcast_strides(w_lead, batch);
  for_each_index(batch, [&](int64_t flat, const Dims& index) {
    const double* a = left.data() + offset_of(index, xs) * m * k;
    const float* b = right.data() + offset_of(index, ws) * n * k;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p) sum += a[i * k + p] * double(b[j * k + p]);
        y.f[size_t((flat * m + i) * n + j)] = sum;
      }
    }
  });
}

}  // namespace

RLX_DEFINE_REFERENCE(DequantMatMul) = dequant_matmul;

}  // namespace rlx::reference
