#pragma once

#include <cstdint>

namespace rlx::cpu {

// Random numbers in whole runs of Philox blocks (layout: rlx/base/philox.h), vectorized.
inline constexpr int64_t kRngBlocks = 64;  // Philox blocks of one call
inline constexpr int64_t kRngValuesF32 = 4 * kRngBlocks;
inline constexpr int64_t kRngValuesF64 = 2 * kRngBlocks;

struct RngStream {
  uint64_t seed, key;
  uint64_t block;  // the first one
};

// to[i] = u_i * scale + offset, product and sum rounded; u_i has the top `bits` bits (24, 11, 8).
void uniform_f32(const RngStream& stream, int bits, float scale, float offset, float* to);
void uniform_f64(const RngStream& stream, double scale, double offset, double* to);
// to[i] = z_i * scale + offset, z_i standard normal.
void normal_f32(const RngStream& stream, float scale, float offset, float* to);
void normal_f64(const RngStream& stream, double scale, double offset, double* to);

}  // namespace rlx::cpu
