// What GemmPlan decides before it runs: packed bytes, paths, scratch, and the shapes it refuses.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "rlx/base/error.h"
#include "tests/unit/cpu_gemm_check.h"

namespace rlx::cpu {
namespace {

using namespace gemm_check;

TEST(CpuGemmLayout, PackedBytesAreTheSameForAllTargets) {
  const Matrix<float> b = make_matrix<float>(Form::kTransposed, 37, 75, 1, 2);
  const size_t bytes = GemmPlan::packed_b_bytes(GemmElement::kF32, 75, 37);
  EXPECT_EQ(bytes, 3u * 37 * 128);
  std::vector<uint8_t> first;
  for (const int64_t target : built_targets()) {
    ForcedTarget forced(target);
    Guarded out(bytes);
    GemmPlan::pack_b(GemmElement::kF32, b.values.data(), 1, 37, 75, 37, out.data());
    ASSERT_TRUE(out.intact());
    std::vector<uint8_t> now(out.data(), out.data() + bytes);
    if (first.empty()) first = now;
    EXPECT_EQ(first, now) << hwy::TargetName(target);
  }
}

TEST(CpuGemmPlan, EachShapeTakesItsPath) {
  const auto path = [](GemmShape s, bool prepacked) {
    return std::string(GemmPlan(GemmElement::kF32, std::move(s), prepacked).path());
  };
  const auto has = [](const std::string& s, const char* part) {
    return s.find(part) != std::string::npos;
  };
  const std::vector<int64_t> one{0};
  EXPECT_TRUE(has(path({8, 8, 8, one, one, one, 8, 1, 8, 1, 8}, false), "a=direct b=direct"));
  EXPECT_TRUE(has(path({8, 8, 8, one, one, one, 8, 1, 1, 8, 8}, false), "b=local"));
  EXPECT_TRUE(
      has(path({1, 4096, 4096, one, one, one, 4096, 1, 0, 0, 4096}, true), "a=direct b=packed"));
  EXPECT_TRUE(has(path({16, 4096, 4096, one, one, one, 4096, 1, 0, 0, 4096}, true),
                  "a=packed b=packed panel-outer"));
  EXPECT_TRUE(has(path({1024, 1024, 1024, one, one, one, 1024, 1, 1024, 1, 1024}, false),
                  "a=packed b=packed k-outer"));
  EXPECT_TRUE(has(path({4000, 400, 700, one, one, one, 700, 1, 400, 1, 400}, true),
                  "a=local b=packed k-outer"));
}

// Packed operands beyond the scratch budget are handled in groups, with a packing phase each.
TEST(CpuGemmPlan, ScratchIsBounded) {
  const std::vector<int64_t> one{0};
  const GemmPlan plan(GemmElement::kF32,
                      GemmShape{40000, 4096, 4096, one, one, one, 4096, 1, 0, 0, 4096}, true);
  EXPECT_LE(plan.scratch_bytes(), size_t{64} << 20);
  EXPECT_GT(plan.phases(), 4);
  EXPECT_EQ(plan.phases() % 2, 0);
}

TEST(CpuGemmPlan, RefusesBadShapes) {
  const std::vector<int64_t> one{0}, two{0, 0};
  const auto make = [](GemmShape s) { return GemmPlan(GemmElement::kF32, std::move(s), false); };
  EXPECT_THROW(make({-1, 1, 1, one, one, one, 1, 1, 1, 1, 1}), Error);
  EXPECT_THROW(make({1, 1, 1, one, one, one, -1, 1, 1, 1, 1}), Error);
  EXPECT_THROW(make({2, 3, 1, one, one, one, 1, 1, 1, 1, 2}), Error);
  EXPECT_THROW(make({1, 1, 1, two, one, one, 1, 1, 1, 1, 1}), Error);
  EXPECT_THROW(make({int64_t{1} << 40, 1, int64_t{1} << 40, one, one, one, 1, 1, 1, 1, 1}), Error);
  EXPECT_THROW(GemmPlan::packed_b_bytes(GemmElement::kF64, int64_t{1} << 40, int64_t{1} << 40),
               Error);
  EXPECT_THROW(GemmPlan::packed_b_bytes(GemmElement::kF64, -1, 4), Error);
}

}  // namespace
}  // namespace rlx::cpu
