#include "rlx/base/packed_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "rlx/base/error.h"
#include "rlx/base/half.h"

namespace rlx {
namespace {

constexpr int kBlock = 32;

bool all_finite(const float* x) {
  return std::all_of(x, x + kBlock, [](float v) { return std::isfinite(v); });
}

// 1 / d, or 0 where x / d counts as 0.
float inverse_of(float d) {
  const float inverse = d == 0 ? 0 : 1 / d;
  return std::isfinite(inverse) ? inverse : 0;
}

void store_scale(float d, uint8_t* block) {
  const uint16_t bits = f16(d).bits;
  std::memcpy(block, &bits, sizeof bits);
}

float load_scale(const uint8_t* block) {
  uint16_t bits;
  std::memcpy(&bits, block, sizeof bits);
  return float(f16::from_bits(bits));
}

void encode_q8_0(const float* x, uint8_t* block) {
  float amax = 0;
  for (int e = 0; e < kBlock; ++e) amax = std::max(amax, std::fabs(x[e]));
  const bool finite = all_finite(x);
  const float d = finite ? amax / 127 : NAN;
  const float inverse = finite ? inverse_of(d) : 0;
  store_scale(d, block);
  for (int e = 0; e < kBlock; ++e) {
    block[2 + e] = finite ? uint8_t(int8_t(std::round(x[e] * inverse))) : 0;
  }
}

void decode_q8_0(const uint8_t* block, float* x) {
  const float d = load_scale(block);
  for (int e = 0; e < kBlock; ++e) x[e] = d * float(int8_t(block[2 + e]));
}

void encode_q4_0(const float* x, uint8_t* block) {
  float most = 0;
  for (int e = 0; e < kBlock; ++e) {
    if (std::fabs(x[e]) > std::fabs(most)) most = x[e];
  }
  const bool finite = all_finite(x);
  const float d = finite ? most / -8 : NAN;
  const float inverse = finite ? inverse_of(d) : 0;
  store_scale(d, block);
  const auto code = [&](float v) {
    const float scaled = finite ? v * inverse : 0;
    return uint8_t(std::min(15, int(scaled + 8.5f)));
  };
  for (int e = 0; e < kBlock / 2; ++e) {
    block[2 + e] = uint8_t(code(x[e]) | code(x[e + kBlock / 2]) << 4);
  }
}

void decode_q4_0(const uint8_t* block, float* x) {
  const float d = load_scale(block);
  for (int e = 0; e < kBlock / 2; ++e) {
    x[e] = d * float((block[2 + e] & 15) - 8);
    x[e + kBlock / 2] = d * float((block[2 + e] >> 4) - 8);
  }
}

}  // namespace

void encode_packed(DType t, const float* from, int64_t count, void* to) {
  if (!is_packed(t)) internal_error("{} is no packed dtype", to_string(t));
  const PackedBlock block = block_of(t);
  bytes_of(t, count);  // checks
  auto* bytes = static_cast<uint8_t*>(to);
  for (int64_t i = 0; i < count / block.elements; ++i) {
    (t == DType::kQ8_0 ? encode_q8_0 : encode_q4_0)(from + i * block.elements,
                                                    bytes + i * block.bytes);
  }
}

void decode_packed(DType t, const void* from, int64_t count, float* to) {
  if (!is_packed(t)) internal_error("{} is no packed dtype", to_string(t));
  const PackedBlock block = block_of(t);
  bytes_of(t, count);  // checks
  const auto* bytes = static_cast<const uint8_t*>(from);
  for (int64_t i = 0; i < count / block.elements; ++i) {
    (t == DType::kQ8_0 ? decode_q8_0 : decode_q4_0)(bytes + i * block.bytes,
                                                    to + i * block.elements);
  }
}

Array pack(const Array& values, DType to) {
  const Array source = values.dense();
  Array packed = Array::uninitialized(to, values.shape());
  encode_packed(to, source.data<float>().data(), source.num_elements(), packed.mutable_raw());
  return packed;
}

Array unpack(const Array& packed) {
  const Array source = packed.dense();
  Array values = Array::uninitialized(DType::kF32, packed.shape());
  decode_packed(packed.dtype(), source.raw(), source.num_elements(),
                values.mutable_data<float>().data());
  return values;
}

}  // namespace rlx
