#include "rlx/base/philox.h"

#include <gtest/gtest.h>

#include <set>

namespace rlx {
namespace {

void expect_words(const PhiloxBlock& got, const uint32_t (&want)[4]) {
  for (int j = 0; j < 4; ++j) EXPECT_EQ(got.word[j], want[j]) << "word " << j;
}

TEST(Philox, KnownAnswers) {
  expect_words(philox({0, 0, 0, 0}, {0, 0}), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr uint32_t kOnes = 0xffffffff;
  expect_words(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
               {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  expect_words(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
               {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(Philox, IsConstexpr) { static_assert(philox({0, 0, 0, 0}, {0, 0}).word[0] == 0x6627e8d5); }

TEST(Philox, BlockPlacesSeedKeyAndIndex) {
  const PhiloxBlock want =
      philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
  expect_words(philox_block(0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u),
               {want.word[0], want.word[1], want.word[2], want.word[3]});
}

TEST(Philox, UniformsUseTheTopBits) {
  EXPECT_EQ(uniform_f32(0), 0.0f);
  EXPECT_EQ(uniform_f32(0x000000ff), 0.0f);
  EXPECT_EQ(uniform_f32(0xffffffff), 1.0f - 0x1p-24f);
  EXPECT_EQ(uniform_f16(0x001fffff), 0.0f);
  EXPECT_EQ(uniform_f16(0xffffffff), 1.0f - 0x1p-11f);
  EXPECT_EQ(uniform_bf16(0x00ffffff), 0.0f);
  EXPECT_EQ(uniform_bf16(0xffffffff), 1.0f - 0x1p-8f);
  EXPECT_EQ(uniform_f32(0x80000000), 0.5f);
  EXPECT_EQ(uniform_f16(0x80000000), 0.5f);
  EXPECT_EQ(uniform_bf16(0x80000000), 0.5f);

  const PhiloxBlock block{{0xffffffff, 0xffffffff, 0, 0x80000000}};
  EXPECT_EQ(uniform_f64(block, 0), 1.0 - 0x1p-53);
  EXPECT_EQ(uniform_f64(block, 1), 0.5);
  EXPECT_EQ(uniform_f64({{0x7ff, 0, 0x800, 0}}, 0), 0.0);
  EXPECT_EQ(uniform_f64({{0x7ff, 0, 0x800, 0}}, 1), 0x1p-53);
}

TEST(Philox, OpenUniformsExcludeZeroAndReachOne) {
  EXPECT_EQ(uniform_open_f32(0), 0x1p-24f);
  EXPECT_EQ(uniform_open_f32(0xffffffff), 1.0f);
  EXPECT_EQ(uniform_open_f64({{0, 0, 0xffffffff, 0xffffffff}}, 0), 0x1p-53);
  EXPECT_EQ(uniform_open_f64({{0, 0, 0xffffffff, 0xffffffff}}, 1), 1.0);
}

TEST(Philox, FoldIsTheFirstTwoWordsUnderItsKey) {
  const uint64_t seed = 0x0123456789abcdefu;
  const uint64_t index = 0x1000000002u;
  const PhiloxBlock want = philox({2, 0x10, 0x464f4c44, 0}, {0x89abcdef, 0x01234567});
  EXPECT_EQ(rng_fold(seed, index), want.word[0] | uint64_t{want.word[1]} << 32);
}

TEST(Philox, FoldedSeedsDiffer) {
  std::set<uint64_t> seeds;
  for (uint64_t seed = 0; seed < 32; ++seed) {
    for (uint64_t index = 0; index < 32; ++index) seeds.insert(rng_fold(seed, index));
  }
  EXPECT_EQ(seeds.size(), 32u * 32u);
}

TEST(Philox, UniformMomentsAreThoseOfTheUniformDistribution) {
  constexpr int kBlocks = 1 << 16;
  double sum = 0, square = 0;
  for (int i = 0; i < kBlocks; ++i) {
    const PhiloxBlock block = philox_block(42, 7, static_cast<uint64_t>(i));
    for (const uint32_t word : block.word) {
      const double u = uniform_f32(word);
      sum += u;
      square += u * u;
    }
  }
  const double n = 4.0 * kBlocks;
  // Standard errors are 0.29 / sqrt(n) and 0.30 / sqrt(n), about 0.0006 here; five of them.
  EXPECT_NEAR(sum / n, 0.5, 0.003);
  EXPECT_NEAR(square / n, 1.0 / 3.0, 0.003);
}

}  // namespace
}  // namespace rlx
