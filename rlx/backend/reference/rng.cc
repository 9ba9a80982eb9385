#include "rlx/ops/rng.h"

#include <cmath>

#include "rlx/backend/reference/reference.h"
#include "rlx/base/philox.h"

namespace rlx::reference {
namespace {

// Calls f(flat position in the result, seed, element of the draw).
template <class F>
void for_each_drawn(const Call& call, const Shape& shape, F&& f) {
  const int64_t n = num_elements(shape.static_dims());
  const int64_t seeds = call.operands.empty() ? 1 : call.operands[0].size();
  for (int64_t s = 0; s < seeds; ++s) {
    const uint64_t seed = call.operands.empty() ? 0 : uint64_t(call.operands[0].i[size_t(s)]);
    for (int64_t e = 0; e < n; ++e) f(size_t(s * n + e), seed, e);
  }
}

double rounded(DType t, double v) { return Array::full(t, {}, v).at(0); }

// The largest number of a 16-bit float type below v, by its bits: their order is that of the
// numbers, with negative ones reversed.
template <class T>
double below(double v) {
  if (v == 0) return -double(T::from_bits(1));
  const uint16_t bits = T(v).bits;
  return double(T::from_bits(uint16_t(v > 0 ? bits - 1 : bits + 1)));
}

double uniform(const RngUniformAttrs& a, uint64_t seed, int64_t element) {
  const double high = rounded(a.dtype, a.high);
  if (a.dtype == DType::kF64) {
    const PhiloxBlock block = philox_block(seed, uint64_t(a.key), uint64_t(element) / 2);
    const double product = uniform_f64(block, int(element % 2)) * (a.high - a.low);
    const double y = a.low + product;
    return y < high ? y : std::nextafter(high, -INFINITY);
  }
  const PhiloxBlock block = philox_block(seed, uint64_t(a.key), uint64_t(element) / 4);
  const uint32_t word = block.word[element % 4];
  const float u = a.dtype == DType::kF16    ? uniform_f16(word)
                  : a.dtype == DType::kBF16 ? uniform_bf16(word)
                                            : uniform_f32(word);
  const float product = u * float(a.high - a.low);
  const double y = rounded(a.dtype, float(a.low) + product);
  if (y < high) return y;
  if (a.dtype == DType::kF16) return below<f16>(high);
  if (a.dtype == DType::kBF16) return below<bf16>(high);
  return double(std::nextafterf(float(high), -INFINITY));
}

double normal(DType dtype, uint64_t seed, uint64_t key, int64_t element) {
  double u1 = 0, u2 = 0;
  if (dtype == DType::kF64) {
    const PhiloxBlock block = philox_block(seed, key, uint64_t(element) / 2);
    u1 = uniform_open_f64(block, 0);
    u2 = uniform_f64(block, 1);
  } else {
    const PhiloxBlock block = philox_block(seed, key, uint64_t(element) / 4);
    const int pair = int(element % 4) / 2 * 2;
    u1 = double(uniform_open_f32(block.word[pair]));
    u2 = double(uniform_f32(block.word[pair + 1]));
  }
  const double radius = std::sqrt(-2 * std::log(u1)), angle = 2 * M_PI * u2;
  return radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

void rng_uniform(const Call& call) {
  const auto& a = call.as<RngUniformAttrs>();
  for_each_drawn(call, a.shape, [&](size_t flat, uint64_t seed, int64_t element) {
    call.results[0].f[flat] = uniform(a, seed, element);
  });
}

void rng_normal(const Call& call) {
  const auto& a = call.as<RngNormalAttrs>();
  const DType wide = a.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const double mean = rounded(wide, a.mean), scale = rounded(wide, a.scale);
  for_each_drawn(call, a.shape, [&](size_t flat, uint64_t seed, int64_t element) {
    call.results[0].f[flat] = mean + scale * normal(a.dtype, seed, uint64_t(a.key), element);
  });
}

void rng_fold(const Call& call) {
  const Tensor &seed = call.operands[0], &index = call.operands[1];
  const Dims& shape = call.results[0].shape;
  const Dims of_seed = broadcast_strides(seed, shape), of_index = broadcast_strides(index, shape);
  for_each_index(shape, [&](int64_t flat, const Dims& at) {
    const auto s = uint64_t(seed.i[size_t(offset_of(at, of_seed))]);
    const auto k = uint64_t(index.i[size_t(offset_of(at, of_index))]);
    const PhiloxBlock block = philox_block(s, 0x464F4C44, k);
    call.results[0].i[size_t(flat)] = int64_t(block.word[0] | uint64_t{block.word[1]} << 32);
  });
}

}  // namespace

RLX_DEFINE_REFERENCE(RngFold) = rng_fold;
RLX_DEFINE_REFERENCE(RngUniform) = rng_uniform;
RLX_DEFINE_REFERENCE(RngNormal) = rng_normal;

}  // namespace rlx::reference
