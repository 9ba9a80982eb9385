// Equal bits for all shapes, strides, paths, chunk orders and packings are the bit contract of
// GemmPlan.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "rlx/base/error.h"
#include "tests/unit/cpu_gemm_check.h"

namespace rlx::cpu {
namespace {

using namespace gemm_check;

class CpuGemm : public testing::TestWithParam<int64_t> {
 protected:
  CpuGemm() : forced_(GetParam()) {}
  ForcedTarget forced_;
};

TEST_P(CpuGemm, UsesTheForcedTarget) {
  for (const GemmElement e : {GemmElement::kF32, GemmElement::kF64}) {
    EXPECT_STREQ(GemmPlan(e, GemmShape{1, 1, 1}, false).target(), hwy::TargetName(GetParam()));
  }
}

// All small sizes are met; forms and flags vary with a period that is prime to the sizes.
TEST_P(CpuGemm, SweepOfSizesAndForms) {
  const int64_t ks[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 31, 32, 33, 47, 64, 70};
  uint32_t x = 0;
  for (int64_t m = 1; m <= 40; ++m) {
    for (int64_t n = 1; n <= 70; n += 1 + (m + n) % 5) {
      x = x * 1664525 + 1013904223;
      Case c;
      c.m = m, c.n = n, c.k = ks[(x >> 8) % std::size(ks)];
      c.a = kForms[(x >> 13) % std::size(kForms)];
      c.b = kForms[(x >> 17) % std::size(kForms)];
      c.prepacked = (x >> 21) % 3 == 0;
      c.accumulate = (x >> 23) % 4 == 0;
      c.epilogue = (x >> 25) % 2 == 0;
      c.c_pad = (x >> 26) % 3;
      x % 3 == 0 ? check_case<double>(c) : check_case<float>(c);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(CpuGemm, EveryFormOfBothOperands) {
  for (const Form a : kForms) {
    for (const Form b : kForms) {
      for (const bool prepacked : {false, true}) {
        for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 37, 29},
                                      {2, 70, 33},
                                      {7, 33, 18},
                                      {19, 35, 41}}) {
          check_both({m, n, k, 1, a, b, prepacked, false, false, false, 1});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Several k blocks, several row blocks, groups of panels: all nests with packing by phase and by
// chunk.
TEST_P(CpuGemm, LargeSizes) {
  for (const bool transposed : {false, true}) {
    for (const bool prepacked : {false, true}) {
      for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 130, 513},
                                    {2, 300, 257},
                                    {3, 259, 1030},
                                    {13, 140, 255},
                                    {30, 70, 513},
                                    {50, 600, 256},
                                    {50, 33, 1025},
                                    {260, 70, 257},
                                    {251, 330, 65},
                                    {300, 4, 40},
                                    {65, 1, 90}}) {
        const Form form = transposed ? Form::kTransposedPadded : Form::kPadded;
        check_case<float>({m, n, k, 1, form, form, prepacked, false, true, false, 1});
        if (HasFatalFailure()) return;
        if (n * k > 60000 && !transposed) continue;
        check_case<double>({m, n, k, 1, form, form, prepacked, true, false, false, 0});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The ends of the blocks of a sum, in every path: direct, several panels at once, few rows, many
// rows with A and B packed by phase and by chunk, one column.
template <class T>
void check_sum_blocks() {
  constexpr int64_t block = sum_block(sizeof(T));
  constexpr std::pair<int64_t, int64_t> kSizes[] = {{1, 160}, {2, 70}, {3, 33},
                                                    {13, 36}, {50, 9}, {20, 1}};
  for (const int64_t k : {int64_t{1}, block - 1, block, block + 1, 3 * block + 7}) {
    for (const auto& [m, n] : kSizes) {
      for (const bool prepacked : {false, true}) {
        for (const bool accumulate : {false, true}) {
          const Form form = prepacked == accumulate ? Form::kRows : Form::kTransposed;
          check_case<T>({m, n, k, 1, form, form, prepacked, accumulate, true, false, 0});
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(CpuGemm, BlocksOfASum) {
  check_sum_blocks<float>();
  if (HasFatalFailure()) return;
  check_sum_blocks<double>();
  if (HasFatalFailure()) return;
  std::string path;
  check_case<float>({50, 300, 1543, 1, Form::kTransposed, Form::kRows, true}, &path);
  EXPECT_NE(path.find("a=packed b=packed k-outer"), std::string::npos) << path;
}

// One chain of so many equal terms would be off by a percent.
TEST_P(CpuGemm, LongSumsAreAccurate) {
  constexpr int64_t k = 1000000;
  const std::vector<float> a(k, 0.001f), b(3, 1.0f);
  for (const int64_t m : {1, 3, 20}) {
    for (const int64_t n : {1, 3}) {
      std::vector<float> c(static_cast<size_t>(m * n));
      GemmArgs args;
      args.a = a.data();
      args.b = b.data();
      args.c = c.data();
      const GemmShape shape{m, n, k, {0}, {0}, {0}, 0, 1, 0, 1, n};  // equal rows of A and of B
      run_plan(GemmPlan(GemmElement::kF32, shape, false), args, 1);
      for (const float v : c) EXPECT_NEAR(v, 1000.0, 1000 * 2e-5) << m << " x " << n;
    }
  }
}

TEST_P(CpuGemm, Batches) {
  for (const bool shared_b : {false, true}) {
    for (const bool prepacked : {false, true}) {
      for (const Form b : {Form::kRows, Form::kTransposed}) {
        for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 64, 20},
                                      {5, 5, 5},
                                      {14, 40, 70},
                                      {1, 9, 0},
                                      {40, 33, 16}}) {
          check_both({m, n, k, 9, Form::kRows, b, prepacked, false, true, shared_b, 0});
          if (HasFatalFailure()) return;
        }
      }
      check_case<float>({245, 40, 17, 3, Form::kTransposed, Form::kTransposed, prepacked, false,
                         true, shared_b, 0});
      if (HasFatalFailure()) return;
    }
  }
}

// Little scratch: blocks of rows and batch items take turns, and items straddle the turns.
TEST_P(CpuGemm, LittleScratch) {
  for (const bool shared_b : {false, true}) {
    for (const int64_t target : {1, 30000}) {
      Case c{490, 260, 20, 3, Form::kTransposed, Form::kRows};
      c.shared_b = shared_b;
      c.scratch_target = target;
      c.epilogue = true;
      std::string path;
      check_case<float>(c, &path);
      if (HasFatalFailure()) return;
      // Three blocks of rows for each item; the larger budget holds two of the nine, but one B.
      EXPECT_NE(path.find("a=packed b=packed"), std::string::npos) << path;
      EXPECT_NE(path.find("units=9 "), std::string::npos) << path;
      EXPECT_NE(path.find(target == 1 ? "groups=9 "
                          : shared_b  ? "groups=5 "
                                      : "groups=6 "),
                std::string::npos)
          << path;
    }
  }
}

// A column of C is computed as a row; the epilogue must not notice.
TEST_P(CpuGemm, OneColumn) {
  for (const Form a : kForms) {
    for (const int64_t c_pad : {0, 1}) {
      for (const bool accumulate : {false, true}) {
        check_both({135, 1, 40, 3, a, Form::kPadded, false, accumulate, true, c_pad == 0, c_pad});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(CpuGemm, EmptySizes) {
  for (const bool accumulate : {false, true}) {
    for (const bool prepacked : {false, true}) {
      for (const int64_t m : {1, 2, 14}) {
        check_both({m, 35, 0, 2, Form::kRows, Form::kRows, prepacked, accumulate, true, false, 1});
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_EQ(GemmPlan(GemmElement::kF32, GemmShape{0, 3, 3}, false).phases(), 0);
  EXPECT_EQ(GemmPlan(GemmElement::kF32, GemmShape{3, 0, 3}, false).phases(), 0);
  EXPECT_EQ(
      GemmPlan(GemmElement::kF32, GemmShape{3, 3, 3, {}, {}, {}, 3, 1, 3, 1, 3}, false).phases(),
      0);
}

// Infinities and NaN stay in the rows and columns they belong to: padding multiplies none of them.
TEST_P(CpuGemm, SpecialValuesStayInPlace) {
  constexpr int64_t m = 14, n = 37, k = 21;
  std::vector<float> a(m * k, 1.0f), b(k * n, 2.0f);
  a[3 * k + 20] = std::numeric_limits<float>::infinity();
  b[5 * n + 36] = std::numeric_limits<float>::quiet_NaN();
  for (const bool prepacked : {false, true}) {
    std::vector<float> c(m * n, std::numeric_limits<float>::quiet_NaN());
    Guarded packed(GemmPlan::packed_b_bytes(GemmElement::kF32, n, k));
    GemmPlan::pack_b(GemmElement::kF32, b.data(), n, 1, n, k, packed.data());
    const GemmPlan plan(GemmElement::kF32, GemmShape{m, n, k, {0}, {0}, {0}, k, 1, n, 1, n},
                        prepacked);
    GemmArgs args;
    args.a = a.data();
    args.b = prepacked ? static_cast<const void*>(packed.data()) : b.data();
    args.c = c.data();
    run_plan(plan, args, 3);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        const float v = c[static_cast<size_t>(i * n + j)];
        if (j == 36) {
          EXPECT_TRUE(std::isnan(v));
        } else if (i == 3) {
          EXPECT_TRUE(std::isinf(v));
        } else {
          EXPECT_EQ(v, 2.0f * k);
        }
      }
    }
  }
}

// The contract in its own words: row 0 alone has the bits that it has among 60 rows, prepacked or
// not.
TEST_P(CpuGemm, ARowHasTheSameBitsInAnyProduct) {
  constexpr int64_t n = 150, k = 700;
  const Matrix<float> a = make_matrix<float>(Form::kRows, 60, k, 1, 1);
  const Matrix<float> b = make_matrix<float>(Form::kRows, k, n, 1, 2);
  Guarded packed(GemmPlan::packed_b_bytes(GemmElement::kF32, n, k));
  GemmPlan::pack_b(GemmElement::kF32, b.values.data(), n, 1, n, k, packed.data());
  const auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
  std::vector<float> first;
  for (const bool prepacked : {true, false}) {
    for (const int64_t m : {1, 2, 3, 12, 13, 30, 60}) {
      std::vector<float> c(static_cast<size_t>(m * n));
      GemmArgs args;
      args.a = a.values.data();
      args.b = prepacked ? static_cast<const void*>(packed.data()) : b.values.data();
      args.c = c.data();
      run_plan(
          GemmPlan(GemmElement::kF32, GemmShape{m, n, k, {0}, {0}, {0}, k, 1, n, 1, n}, prepacked),
          args, 5);
      c.resize(n);
      if (first.empty()) first = c;
      ASSERT_TRUE(std::ranges::equal(first, c, {}, bits, bits))
          << m << " rows, prepacked " << prepacked;
    }
  }
}

// Threads take chunks as they come; phases are apart. Meant for the thread sanitizer too.
TEST_P(CpuGemm, ThreadsShareTheChunks) {
  constexpr int64_t m = 130, n = 200, k = 90;
  const Matrix<float> a = make_matrix<float>(Form::kTransposed, m, k, 1, 1);
  const Matrix<float> b = make_matrix<float>(Form::kTransposed, k, n, 1, 2);
  const GemmPlan plan(GemmElement::kF32, GemmShape{m, n, k, {0}, {0}, {0}, 1, m, 1, k, n}, false);
  std::vector<float> alone(m * n), together(m * n);
  GemmArgs args;
  args.a = a.values.data();
  args.b = b.values.data();
  args.c = alone.data();
  run_plan(plan, args, 5);
  Guarded scratch(plan.scratch_bytes());
  args.c = together.data();
  args.scratch = scratch.data();
  for (int phase = 0; phase < plan.phases(); ++phase) {
    std::atomic<int64_t> next{0};
    const auto work = [&] {
      Guarded mine(plan.thread_scratch_bytes());
      GemmArgs own = args;
      own.thread_scratch = mine.data();
      for (int64_t chunk; (chunk = next.fetch_add(1)) < plan.chunks(phase);)
        plan.run(phase, chunk, own);
    };
    std::vector<std::thread> threads;
    threads.reserve(3);
    for (int i = 0; i < 3; ++i) threads.emplace_back(work);
    for (std::thread& t : threads) t.join();
  }
  EXPECT_EQ(std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float)), 0);
  EXPECT_TRUE(scratch.intact());
}

std::string target_name(const testing::TestParamInfo<int64_t>& info) {
  return hwy::TargetName(info.param);
}
INSTANTIATE_TEST_SUITE_P(Targets, CpuGemm, testing::ValuesIn(built_targets()), target_name);

TEST(CpuGemmTargets, AllBuiltTargetsAreTested) {
#if HWY_ARCH_X86
  const int64_t known = (HWY_AVX3_DL | HWY_AVX2) & ~HWY_DISABLED_TARGETS;
  int64_t expected = (hwy::SupportedTargets() & known) | HWY_SCALAR;
  for (const int64_t target : built_targets()) expected &= ~target;
  EXPECT_EQ(expected, 0) << "a supported target has no kernels";
#else
  EXPECT_FALSE(built_targets().empty());
#endif
}

}  // namespace
}  // namespace rlx::cpu
