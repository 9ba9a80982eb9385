#include <cmath>
#include <cstring>

#include "rlx/backend/cpu/int8/int8_kernels.h"
#include "rlx/base/half.h"

namespace rlx::cpu {
namespace {

int code_of(DType packed, const uint8_t* block, int e) {
  if (packed == DType::kQ8_0) return int8_t(block[2 + e]);
  return e < 16 ? block[2 + e] & 15 : block[2 + e - 16] >> 4;
}

float dot_row(const Int8Dot& p, int64_t row, const uint8_t* w, int64_t block_bytes) {
  float lanes[8] = {};
  for (int64_t b = 0; b < p.blocks; ++b, w += block_bytes) {
    const int64_t at = row * p.blocks + b;
    uint16_t bits;
    std::memcpy(&bits, w, sizeof bits);
    const float scale = f16_bits_to_float(bits) * p.scale[at];
    for (int l = 0; l < 8; ++l) {
      int32_t sum = p.start[at * 8 + l];
      for (int e = 4 * l; e < 4 * l + 4; ++e) sum += code_of(p.packed, w, e) * p.q[at * 32 + e];
      lanes[l] = std::fma(float(sum), scale, lanes[l]);
    }
  }
  for (int h = 4; h > 0; h /= 2) {
    for (int l = 0; l < h; ++l) lanes[l] += lanes[l + h];
  }
  return lanes[0];
}

void dot(const Int8Dot& p) {
  const int64_t block_bytes = block_of(p.packed).bytes;
  for (int64_t j = 0; j < p.columns; ++j) {
    for (int64_t i = 0; i < p.rows; ++i) {
      p.y[i * p.y_stride + j] = dot_row(p, i, p.w + j * p.blocks * block_bytes, block_bytes);
    }
  }
}

void product(const Int8Product& p) {
  for (int64_t i = 0; i < p.rows; ++i) {
    uint32_t sums[kInt8PanelColumns] = {};
    const uint8_t* a = p.a + i * p.a_stride;
    for (int64_t s = 0; s < p.steps; ++s) {
      const int8_t* b = p.b + s * kInt8PanelColumns * 4;
      for (int64_t j = 0; j < kInt8PanelColumns; ++j) {
        for (int64_t t = 0; t < 4; ++t) sums[j] += uint32_t(int32_t(a[s * 4 + t]) * b[j * 4 + t]);
      }
    }
    std::memcpy(p.sums + i * kInt8PanelColumns, sums, sizeof sums);
  }
}

constexpr Int8Kernels kKernels{"scalar", dot, product};

}  // namespace

const Int8Kernels* int8_kernels_scalar() { return &kKernels; }

}  // namespace rlx::cpu
