// Products by GemmPlan, compared bit by bit with plain code (a sum of chains of fused
// multiply-adds, one for each block of k), and that with a sum in higher precision.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "hwy/targets.h"
#include "rlx/backend/cpu/gemm/gemm.h"
#include "rlx/backend/cpu/gemm/gemm_layout.h"

namespace rlx::cpu::gemm_check {

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

inline std::vector<int64_t> built_targets() {
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

inline std::ostream& operator<<(std::ostream& out, const Case& c) {
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
inline void run_plan(const GemmPlan& plan, GemmArgs args, uint32_t seed) {
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

inline void check_both(const Case& c) {
  check_case<float>(c);
  if (!testing::Test::HasFatalFailure()) check_case<double>(c);
}

}  // namespace rlx::cpu::gemm_check
