#pragma once

// Counter-based random bits: Philox 4x32 with 10 rounds (Salmon et al., "Parallel random numbers:
// as easy as 1, 2, 3", SC 2011). Every random op of every backend draws from here, so a result is a
// pure function of (seed, key, element) and never of devices, threads or order.
//
// Layout. Block i of a draw is philox(counter = {i lo, i hi, key lo, key hi}, key = {seed lo,
// seed hi}): four 32-bit words.
//
//   dtype  values per block  element of block i   bits
//   f32    4                 4i + j               top 24 of word j, times 2^-24
//   f16    4                 4i + j               top 11 of word j, times 2^-11
//   bf16   4                 4i + j               top 8 of word j, times 2^-8
//   f64    2                 2i + j               top 53 of (word 2j | word 2j+1 << 32), times
//   2^-53
//
// Uniforms lie in [0, 1) and are exact in their dtype.
//
// Normals are Box-Muller on a pair of uniforms: r = sqrt(-2 log u1), a = 2 pi u2, values (r cos a,
// r sin a), where u1 lies in (0, 1] (the same bits plus one: `uniform_open_f32`, `..._f64`) and u2
// in [0, 1).
//   f32, f16, bf16: u1, u2 are 24-bit uniforms of words (0, 1) for elements 4i and 4i+1, of words
//                   (2, 3) for elements 4i+2 and 4i+3; narrower types round the f32 value.
//   f64:            u1, u2 are the two 53-bit uniforms of block i, for elements 2i and 2i+1.
//
// No library types, so that GPU sources can include this file as it is.

#include <cstdint>

namespace rlx {

struct PhiloxBlock {
  uint32_t word[4];
};

// Ten rounds on `counter` under `key`; matches the published known-answer vectors of Random123.
constexpr PhiloxBlock philox(const uint32_t (&counter)[4], const uint32_t (&key)[2]) {
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Block `index` of the draw (seed, key).
constexpr PhiloxBlock philox_block(uint64_t seed, uint64_t key, uint64_t index) {
  const uint32_t counter[4] = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                               static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  const uint32_t seed_words[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  return philox(counter, seed_words);
}

// Uniforms in [0, 1) of one word; the 16-bit types get the f32 value, which is exact in them.
constexpr float uniform_f32(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
constexpr float uniform_f16(uint32_t word) { return static_cast<float>(word >> 21) * 0x1p-11f; }
constexpr float uniform_bf16(uint32_t word) { return static_cast<float>(word >> 24) * 0x1p-8f; }

// The 53 bits of value j (0 or 1) of a block.
constexpr uint64_t philox_bits53(const PhiloxBlock& block, int j) {
  return (block.word[2 * j] | uint64_t{block.word[2 * j + 1]} << 32) >> 11;
}
constexpr double uniform_f64(const PhiloxBlock& block, int j) {
  return static_cast<double>(philox_bits53(block, j)) * 0x1p-53;
}

// Uniforms in (0, 1] for the logarithm of Box-Muller.
constexpr float uniform_open_f32(uint32_t word) {
  return static_cast<float>((word >> 8) + 1) * 0x1p-24f;
}
constexpr double uniform_open_f64(const PhiloxBlock& block, int j) {
  return static_cast<double>(philox_bits53(block, j) + 1) * 0x1p-53;
}

// The key under which seeds are folded ("FOLD"); no random op uses it for its draws.
inline constexpr uint64_t kRngFoldKey = 0x464F4C44u;

// A new seed from a seed and the index of a loop iteration, a layer or a training step: the first
// two words of block `index` under kRngFoldKey.
constexpr uint64_t rng_fold(uint64_t seed, uint64_t index) {
  const PhiloxBlock block = philox_block(seed, kRngFoldKey, index);
  return block.word[0] | uint64_t{block.word[1]} << 32;
}

}  // namespace rlx
