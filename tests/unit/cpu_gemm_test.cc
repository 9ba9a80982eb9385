// Every result is compared bit by bit with plain code (a sum of chains of fused multiply-adds, one
// for each block of k), and that with a sum in higher precision. Equal bits for all shapes,
// strides, paths, chunk orders and packings are the bit contract of GemmPlan.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "hwy/targets.h"
#include "rlx/backend/cpu/gemm/gemm.h"
#include "rlx/backend/cpu/gemm/gemm_layout.h"
#include "rlx/base/error.h"

namespace rlx::cpu {
namespace {

// Forces one of Highway's targets for plans made while it lives.
class ForcedTarget {
 public:
  explicit ForcedTarget(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  ~ForcedTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

std::vector<int64_t> built_targets() {
  std::vector<int64_t> targets;
  const int64_t best = hwy::SupportedTargets();
  for (int64_t bits = best | HWY_SCALAR; bits != 0; bits &= bits - 1) {
    const int64_t target = bits & -bits;
    ForcedTarget forced(target);
    const GemmPlan plan(GemmElement::kF32, GemmShape{1, 1, 1}, false);
    if (std::string(plan.target()) == hwy::TargetName(target)) targets.push_back(target);
  }
  return targets;
}

template <class T>
constexpr GemmElement kElement = sizeof(T) == 4 ? GemmElement::kF32 : GemmElement::kF64;

// Memory of exactly `bytes`, 64-byte aligned, between guards; all of it starts as NaN.
class Guarded {
 public:
  explicit Guarded(size_t bytes) : bytes_(bytes), memory_(bytes + 2 * kGuard + 64, 0xFF) {
    std::fill_n(data() - kGuard, kGuard, uint8_t{0xA5});
    std::fill_n(data() + bytes_, kGuard, uint8_t{0xA5});
  }
  uint8_t* data() {
    const auto p = reinterpret_cast<uintptr_t>(memory_.data()) + kGuard;
    return reinterpret_cast<uint8_t*>((p + 63) / 64 * 64);
  }
  void poison() { std::fill_n(data(), bytes_, uint8_t{0xFF}); }
  bool intact() {
    const auto is_guard = [](uint8_t b) { return b == 0xA5; };
    return std::all_of(data() - kGuard, data(), is_guard) &&
           std::all_of(data() + bytes_, data() + bytes_ + kGuard, is_guard);
  }

 private:
  static constexpr size_t kGuard = 256;
  size_t bytes_;
  std::vector<uint8_t> memory_;
};

// A matrix in heap memory that ends with its last element, so that a sanitizer sees any overrun;
// elements between those of the view are NaN, so that a stray read spoils the result.
template <class T>
struct Matrix {
  std::vector<T> values;
  int64_t row_stride = 0, col_stride = 0, batch_stride = 0;
  T at(int64_t b, int64_t i, int64_t j) const {
    return values[static_cast<size_t>(b * batch_stride + i * row_stride + j * col_stride)];
  }
};

enum class Form {
  kRows,
  kPadded,
  kTransposed,
  kTransposedPadded,
  kStrided,
  kRowBroadcast,
  kColBroadcast
};
constexpr Form kForms[] = {
    Form::kRows,    Form::kPadded,       Form::kTransposed,  Form::kTransposedPadded,
    Form::kStrided, Form::kRowBroadcast, Form::kColBroadcast};

template <class T>
Matrix<T> make_matrix(Form form, int64_t rows, int64_t cols, int64_t batch, uint32_t seed) {
  Matrix<T> m;
  switch (form) {
    case Form::kRows:
      m.row_stride = cols, m.col_stride = 1;
      break;
    case Form::kPadded:
      m.row_stride = cols + 3, m.col_stride = 1;
      break;
    case Form::kTransposed:
      m.row_stride = 1, m.col_stride = rows;
      break;
    case Form::kTransposedPadded:
      m.row_stride = 1, m.col_stride = rows + 5;
      break;
    case Form::kStrided:
      m.row_stride = 2 * cols + 1, m.col_stride = 2;
      break;
    case Form::kRowBroadcast:
      m.row_stride = 0, m.col_stride = 1;
      break;
    case Form::kColBroadcast:
      m.row_stride = 1, m.col_stride = 0;
      break;
  }
  const bool empty = rows == 0 || cols == 0;
  const int64_t size = empty ? 0 : (rows - 1) * m.row_stride + (cols - 1) * m.col_stride + 1;
  m.batch_stride = size + 7;
  m.values.assign(static_cast<size_t>(size == 0 ? 0 : (batch - 1) * m.batch_stride + size),
                  std::numeric_limits<T>::quiet_NaN());
  std::minstd_rand random(seed + 1);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        // 24 random bits: products and sums round at nearly every step.
        const T v = (static_cast<T>(random() & 0xFFFFFF) - T(0x800000)) / T(0x654321);
        m.values[static_cast<size_t>(b * m.batch_stride + i * m.row_stride + j * m.col_stride)] = v;
      }
    }
  }
  return m;
}

struct Case {
  int64_t m = 1, n = 1, k = 1, batch = 1;
  Form a = Form::kRows, b = Form::kRows;
  bool prepacked = false, accumulate = false, epilogue = false, shared_b = false;
  int64_t c_pad = 0;
  int64_t scratch_target = GemmPlan::kScratchTarget;
  bool by_tiles = false;  // an epilogue of rows, on single tiles
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.m << "x" << c.n << "x" << c.k << " batch " << c.batch << " a form "
             << static_cast<int>(c.a) << " b form " << static_cast<int>(c.b)
             << (c.prepacked ? " prepacked" : "") << (c.accumulate ? " accumulate" : "")
             << (c.by_tiles ? " by tiles" : "") << (c.epilogue ? " epilogue" : "")
             << (c.shared_b ? " shared b" : "") << " c pad " << c.c_pad;
}

// A sum of blocks, or one chain from *start.
template <class T>
T sum_of_blocks(const Matrix<T>& a, const Matrix<T>& b, int64_t ab, int64_t bb, int64_t i,
                int64_t j, int64_t k, const T* start, bool fused) {
  const int64_t block = start ? std::max<int64_t>(k, 1) : sum_block(sizeof(T));
  T total = start ? *start : T{0};
  for (int64_t k0 = 0; k0 < k; k0 += block) {
    T sum = start ? *start : T{0};
    for (int64_t s = k0; s < std::min(k, k0 + block); ++s) {
      sum = fused ? std::fma(a.at(ab, i, s), b.at(bb, s, j), sum)
                  : a.at(ab, i, s) * b.at(bb, s, j) + sum;
    }
    total = k0 == 0 ? sum : total + sum;
  }
  return total;
}

// The sum in a wider type, and how far a sum of blocks of rounded steps may be from it.
template <class T>
void expect_near(const Matrix<T>& a, const Matrix<T>& b, int64_t ab, int64_t bb, int64_t i,
                 int64_t j, int64_t k, const T* start, T got) {
  using Wide = std::conditional_t<sizeof(T) == 4, double, long double>;
  Wide sum = start ? *start : T{0}, size = std::abs(sum);
  for (int64_t s = 0; s < k; ++s) {
    const Wide p = static_cast<Wide>(a.at(ab, i, s)) * static_cast<Wide>(b.at(bb, s, j));
    sum += p;
    size += std::abs(p);
  }
  const int64_t block = sum_block(sizeof(T));
  const int64_t roundings = start ? k : std::min(k, block) + k / block;
  const Wide bound = static_cast<Wide>(roundings + 1) * std::numeric_limits<T>::epsilon() * size;
  ASSERT_LE(std::abs(static_cast<Wide>(got) - sum), bound);
}

template <class T>
uint64_t bits(T v) {
  uint64_t u = 0;
  std::memcpy(&u, &v, sizeof v);
  return u;
}

template <class T>
struct EpilogueState {
  T* c;
  int64_t batch_stride, row_stride;
  std::vector<int> seen;  // per element of C
  int64_t m, n;
};

// Doubles and adds the column, and checks that the row piece is what it claims to be.
template <class T>
void double_and_add_column(const void* state, void* row, int64_t batch, int64_t i, int64_t j,
                           int64_t n) {
  auto& s = *static_cast<EpilogueState<T>*>(const_cast<void*>(state));
  T* p = static_cast<T*>(row);
  EXPECT_EQ(p, s.c + batch * s.batch_stride + i * s.row_stride + j);
  for (int64_t q = 0; q < n; ++q) {
    p[q] = p[q] * 2 + static_cast<T>(j + q);
    ++s.seen[static_cast<size_t>((batch * s.m + i) * s.n + j + q)];
  }
}

template <class T>
void double_and_add_columns(const void* state, void* c, int64_t row_stride, int64_t batch,
                            int64_t i, int64_t rows, int64_t j, int64_t n) {
  for (int64_t q = 0; q < rows; ++q) {
    double_and_add_column<T>(state, static_cast<T*>(c) + q * row_stride, batch, i + q, j, n);
  }
}

// Runs the plan's chunks in a scrambled order with scratch that is NaN where nothing was packed,
// and thread scratch that is NaN at the begin of every chunk.
void run_plan(const GemmPlan& plan, GemmArgs args, uint32_t seed) {
  Guarded scratch(plan.scratch_bytes()), thread_scratch(plan.thread_scratch_bytes());
  args.scratch = scratch.data();
  args.thread_scratch = thread_scratch.data();
  std::minstd_rand random(seed + 1);
  for (int phase = 0; phase < plan.phases(); ++phase) {
    std::vector<int64_t> order(static_cast<size_t>(plan.chunks(phase)));
    ASSERT_FALSE(order.empty());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
    std::shuffle(order.begin(), order.end(), random);
    for (const int64_t chunk : order) {
      thread_scratch.poison();
      plan.run(phase, chunk, args);
    }
  }
  ASSERT_TRUE(scratch.intact());
  ASSERT_TRUE(thread_scratch.intact());
}

template <class T>
void check_case(const Case& c, std::string* path = nullptr) {
  SCOPED_TRACE(testing::Message() << c << (sizeof(T) == 4 ? " f32" : " f64"));
  const int64_t b_batch = c.shared_b ? 1 : c.batch;
  const Matrix<T> a = make_matrix<T>(c.a, c.m, c.k, c.batch, 1);
  const Matrix<T> b = make_matrix<T>(c.b, c.k, c.n, b_batch, 2);
  const int64_t ldc = c.n + c.c_pad, c_stride = c.m * ldc + 3;
  Guarded memory(static_cast<size_t>(c.batch * c_stride) * sizeof(T));
  T* out = reinterpret_cast<T*>(memory.data());
  const Matrix<T> start = make_matrix<T>(Form::kRows, c.m, c.n, c.batch, 3);
  GemmShape shape{c.m,          c.n,          c.k,          {},           {}, {},
                  a.row_stride, a.col_stride, b.row_stride, b.col_stride, ldc};
  shape.a_offset.clear(), shape.b_offset.clear(), shape.c_offset.clear();
  const size_t packed_bytes = GemmPlan::packed_b_bytes(kElement<T>, c.n, c.k);
  Guarded packed(c.prepacked ? packed_bytes * static_cast<size_t>(b_batch) : 0);
  for (int64_t i = 0; i < c.batch; ++i) {
    const int64_t bi = c.shared_b ? 0 : i;
    shape.a_offset.push_back(i * a.batch_stride);
    shape.b_offset.push_back(c.prepacked ? bi * static_cast<int64_t>(packed_bytes / sizeof(T))
                                         : bi * b.batch_stride);
    shape.c_offset.push_back(i * c_stride);
    for (int64_t r = 0; c.accumulate && r < c.m; ++r) {
      for (int64_t j = 0; j < c.n; ++j) out[i * c_stride + r * ldc + j] = start.at(i, r, j);
    }
  }
  for (int64_t i = 0; c.prepacked && i < b_batch; ++i) {
    GemmPlan::pack_b(kElement<T>, b.values.data() + i * b.batch_stride, b.row_stride, b.col_stride,
                     c.n, c.k, packed.data() + static_cast<size_t>(i) * packed_bytes);
  }
  ASSERT_TRUE(packed.intact());
  const GemmPlan plan(kElement<T>, shape, c.prepacked, c.accumulate, c.scratch_target);
  if (path) *path = plan.path();
  SCOPED_TRACE(plan.path());
  EpilogueState<T> state{
      out, c_stride, ldc, std::vector<int>(static_cast<size_t>(c.batch * c.m * c.n)), c.m, c.n};
  GemmArgs args;
  args.a = a.values.data();
  args.b = c.prepacked ? static_cast<const void*>(packed.data()) : b.values.data();
  args.c = out;
  if (c.by_tiles) {
    args.epilogue = {nullptr, &state, &double_and_add_columns<T>, true};
  } else if (c.epilogue) {
    args.epilogue = {&double_and_add_column<T>, &state};
  }
  run_plan(plan, args, 7);
  if (testing::Test::HasFatalFailure()) return;
  ASSERT_TRUE(memory.intact());
  const bool fused =
      std::string(plan.target()) != "Scalar" && std::string(plan.target()) != "SCALAR";
  for (int64_t i = 0; i < c.batch; ++i) {
    const int64_t bi = c.shared_b ? 0 : i;
    for (int64_t r = 0; r < c.m; ++r) {
      for (int64_t j = 0; j < ldc; ++j) {
        const T got = out[i * c_stride + r * ldc + j];
        if (j >= c.n) {
          ASSERT_TRUE(std::isnan(got)) << "padding of C written at " << r << ", " << j;
          continue;
        }
        const T first = start.at(i, r, j), *from = c.accumulate ? &first : nullptr;
        T want = sum_of_blocks(a, b, i, bi, r, j, c.k, from, fused);
        if ((r + j) % 5 == 0) expect_near(a, b, i, bi, r, j, c.k, from, want);
        if (c.epilogue) want = want * 2 + static_cast<T>(j);
        ASSERT_EQ(bits(got), bits(want))
            << "at " << i << ", " << r << ", " << j << ": " << got << " for " << want;
      }
    }
  }
  for (const int times : state.seen) ASSERT_EQ(times, c.epilogue ? 1 : 0);
  if (c.epilogue && !c.by_tiles) {
    Case tiles = c;
    tiles.by_tiles = true;
    check_case<T>(tiles);
  }
}

void check_both(const Case& c) {
  check_case<float>(c);
  if (!testing::Test::HasFatalFailure()) check_case<double>(c);
}

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
      ASSERT_EQ(std::memcmp(first.data(), c.data(), n * sizeof(float)), 0)
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
