#include "rlx/ops/quantize.h"

#include <algorithm>
#include <cmath>

#include "rlx/backend/reference/packed.h"

namespace rlx::reference {

std::vector<float> decoded(const Tensor& t) {
  std::vector<uint8_t> bytes(t.i.begin(), t.i.end());
  std::vector<float> values(static_cast<size_t>(t.size()));
  decode_packed(t.dtype, bytes.data(), t.size(), values.data());
  return values;
}

void encode(const std::vector<float>& values, Tensor& to) {
  std::vector<uint8_t> bytes(to.i.size());
  encode_packed(to.dtype, values.data(), to.size(), bytes.data());
  to.i.assign(bytes.begin(), bytes.end());
}

namespace {

// The channel of every element, 0 without an axis.
size_t channel_of(const Dims& index, const std::optional<int64_t>& axis) {
  return axis ? size_t(index[size_t(*axis)]) : 0;
}

double rounded(double v, QuantizeRounding rounding) {
  return rounding == QuantizeRounding::kAway ? std::round(v) : std::nearbyint(v);
}

void quantize(const Call& call) {
  const auto& a = call.as<QuantizeAttrs>();
  const Tensor& x = call.operands[0];
  Tensor& q = call.results[0];
  if (is_packed(q.dtype)) return encode({x.f.begin(), x.f.end()}, q);
  const CodeRange range = code_range(q.dtype);
  for_each_index(x.shape, [&](int64_t flat, const Dims& index) {
    const size_t c = channel_of(index, a.axis);
    const double v = x.f[size_t(flat)], s = a.scales[c];
    const double ratio = x.dtype == DType::kF64 ? v / s : double(float(v) / float(s));
    const double code = std::isnan(v) ? 0 : rounded(ratio, a.rounding);
    q.i[size_t(flat)] =
        int64_t(std::clamp(code + double(a.zero_points[c]), double(range.low), double(range.high)));
  });
}

void dequantize(const Call& call) {
  const auto& a = call.as<DequantizeAttrs>();
  const Tensor& q = call.operands[0];
  Tensor& x = call.results[0];
  if (is_packed(q.dtype)) {
    const std::vector<float> values = decoded(q);
    x.f.assign(values.begin(), values.end());
    return;
  }
  for_each_index(q.shape, [&](int64_t flat, const Dims& index) {
    const size_t c = channel_of(index, a.axis);
    const double s = x.dtype == DType::kF64 ? a.scales[c] : double(float(a.scales[c]));
    x.f[size_t(flat)] = double(q.i[size_t(flat)] - a.zero_points[c]) * s;
  });
}

}  // namespace

RLX_DEFINE_REFERENCE(Quantize) = quantize;
RLX_DEFINE_REFERENCE(Dequantize) = dequantize;

}  // namespace rlx::reference
