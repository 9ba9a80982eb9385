// Products with packed weights, few rows: weights rotate through more than 256 MB, so they come
// from memory. The ceiling of a row is a plain read of the same bytes between its repetitions, on
// the same thread; `share` is achieved over ceiling. Rows with many rows of x state the rate of
// operations instead, to be held against gemm_bench's peak.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/dequant_bench.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Four sequences at once read a little faster than one.
uint32_t read_words(const uint32_t* p, int64_t count) {
  const hn::ScalableTag<uint32_t> d;
  constexpr int kStreams = 4;
  const int64_t step = int64_t(hn::Lanes(d)), part = count / kStreams;
  hn::Vec<decltype(d)> sums[kStreams * 2];
#pragma GCC unroll 8
  for (int i = 0; i < kStreams * 2; ++i) sums[i] = hn::Zero(d);
  for (int64_t j = 0; j + 2 * step <= part; j += 2 * step) {
#pragma GCC unroll 4
    for (int i = 0; i < kStreams; ++i) {
      sums[2 * i] = hn::Add(sums[2 * i], hn::LoadU(d, p + i * part + j));
      sums[2 * i + 1] = hn::Add(sums[2 * i + 1], hn::LoadU(d, p + i * part + j + step));
    }
  }
#pragma GCC unroll 8
  for (int i = 1; i < kStreams * 2; ++i) sums[0] = hn::Add(sums[0], sums[i]);
  return hn::GetLane(sums[0]);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/backend/cpu/int8/int8_kernels.h"
#include "rlx/backend/cpu/kernels/packed_dot.h"
#include "rlx/base/array.h"
#include "rlx/ops/build.h"
#include "rlx/ops/dequant_matmul.h"
#include "rlx/runtime/session.h"

namespace rlx::cpu {
namespace {

HWY_EXPORT(read_words);

// Of this thread: what other programs use does not count.
double seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + int64_t(v.size() / 2), v.end());
  return v[v.size() / 2];
}

// Blocks with small scales and any codes, on huge pages where the system grants them.
class Weights {
 public:
  Weights(DType packed, int64_t bytes) : bytes_(bytes) {
    constexpr int64_t kHuge = int64_t{2} << 20;
    const int64_t size = (bytes + kHuge) / kHuge * kHuge;
    memory_.reset(std::aligned_alloc(size_t(kHuge), size_t(size)));
    madvise(memory_.get(), size_t(size), MADV_HUGEPAGE);
    auto* p = static_cast<uint8_t*>(memory_.get());
    uint32_t x = 1;
    for (int64_t i = 0; i < size; ++i) p[i] = uint8_t((x = x * 1664525 + 1013904223) >> 24);
    const int64_t block = block_of(packed).bytes;
    const uint16_t scale = 0x2000;  // 2^-7
    for (int64_t i = 0; i + block <= size; i += block) std::memcpy(p + i, &scale, 2);
  }
  const uint8_t* data() const { return static_cast<const uint8_t*>(memory_.get()); }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> memory_;
  int64_t bytes_;
};

// run(w) is timed on one weight after the other, a read of another between each two.
template <class F>
void report_stream(benchmark::State& state, const Weights& w, int64_t bytes, F&& run) {
  const int64_t copies = w.bytes() / bytes;
  int64_t i = 0;
  const auto next = [&] { return w.data() + i++ % copies * bytes; };
  std::vector<double> times, reads;
  for (auto _ : state) {
    double start = seconds();
    const auto* words = reinterpret_cast<const uint32_t*>(next());
    benchmark::DoNotOptimize(HWY_DYNAMIC_DISPATCH(read_words)(words, bytes / 4));
    reads.push_back(seconds() - start);
    const uint8_t* weight = next();
    start = seconds();
    run(weight);
    times.push_back(seconds() - start);
    state.SetIterationTime(times.back());
  }
  state.counters["GB/s"] = double(bytes) / median(times) * 1e-9;
  state.counters["ceiling"] = double(bytes) / median(reads) * 1e-9;
  state.counters["share"] = median(reads) / median(times);
}

constexpr int64_t kRotated = int64_t{400} << 20;

template <DType T>
void dequant_exact(benchmark::State& state) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const int64_t bytes = n * bytes_of(T, k);
  const Weights w(T, kRotated / bytes * bytes);
  const std::vector<float> x(size_t(m * (k + kPackedDotSteps)), 0.25f);
  std::vector<float> y(size_t(m * n));
  PackedDot p;
  p.packed = T;
  p.k = k;
  const bool panels = m > kPackedDotFewRows;  // rows as DequantMatMul arranges them
  p.x_stride = panels ? kPackedDotSteps : k;
  p.x_block = kPackedDotSteps * m;
  p.x = x.data();
  p.rows = m;
  p.columns = n;
  p.y = y.data();
  p.y_stride = n;
  p.stream = true;
  const auto scratch = allocate_aligned(packed_dot_scratch(m));
  p.scratch = scratch.get();
  report_stream(state, w, bytes, [&](const uint8_t* weight) {
    p.w = weight;
    packed_dot(p);
    benchmark::DoNotOptimize(y.data());
  });
  state.counters["gflops"] = double(state.iterations()) * 2 * double(m) * double(n) * double(k);
  state.counters["gflops"].flags = benchmark::Counter::kIsRate;
}

template <DType T>
void dequant_int8(benchmark::State& state) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2), b = k / 32;
  const int64_t bytes = n * bytes_of(T, k);
  const Weights w(T, kRotated / bytes * bytes);
  const std::vector<int8_t> q(size_t(m * k), 3);
  const std::vector<float> scale(size_t(m * b), 0.5f);
  const std::vector<int32_t> starts(size_t(m * b * 8), -8 * 12);
  std::vector<float> y(size_t(m * n));
  const Int8Kernels& kernels = *int8_kernels().front();
  state.SetLabel(kernels.name);
  report_stream(state, w, bytes, [&](const uint8_t* weight) {
    kernels.dot({T, b, m, q.data(), scale.data(), starts.data(), weight, n, y.data(), n});
    benchmark::DoNotOptimize(y.data());
  });
}

void few(benchmark::internal::Benchmark* b) {
  b->ArgNames({"m", "n", "k"})->UseManualTime()->Iterations(31);
  for (const int64_t m : {1, 2, 4, 8, 16}) b->Args({m, 4096, 4096});
  b->Args({1, 4096, 11008})->Args({1, 11008, 4096})->Args({128, 1024, 4096});
}
BENCHMARK(dequant_exact<DType::kQ8_0>)->Name("dequant_q8_0")->Apply(few);
BENCHMARK(dequant_exact<DType::kQ4_0>)->Name("dequant_q4_0")->Apply(few);

void few_int8(benchmark::internal::Benchmark* b) {
  b->ArgNames({"m", "n", "k"})->UseManualTime()->Iterations(31);
  for (const int64_t m : {1, 2, 4, 8}) b->Args({m, 4096, 4096});
}
BENCHMARK(dequant_int8<DType::kQ8_0>)->Name("dequant_q8_0_int8")->Apply(few_int8);
BENCHMARK(dequant_int8<DType::kQ4_0>)->Name("dequant_q4_0_int8")->Apply(few_int8);

// The op itself on several threads: one row through 24 weights of 4096 x 4096 by turns.
template <DType T>
void dequant_session(benchmark::State& state) {
  constexpr int64_t kSize = 4096, kLayers = 24;
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {1, kSize});
  SessionOptions options;
  options.threads = int(state.range(0));
  Session session(cpu_device(), options);
  Value y = x;
  double bytes = 0;
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string name = "w" + std::to_string(i);
    const Array weight = Array::zeros(T, {kSize, kSize});
    bytes += double(weight.byte_size());
    session.weights().set(name, weight);
    const DequantMatMulAttrs attrs{WeightScheme::kPacked, state.range(1) != 0
                                                              ? MatMulActivations::kInt8Block
                                                              : MatMulActivations::kExact};
    y = dequant_matmul(b, y, param(b, name, T, {kSize, kSize}), attrs);
  }
  g.add_output("y", y);
  Executable model = session.compile(g);
  const Array one = Array::full(DType::kF32, {1, kSize}, 0.5);
  for (auto _ : state) benchmark::DoNotOptimize(model.run({&one, 1}));
  state.counters["GB/s"] =
      benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}
void sessions(benchmark::internal::Benchmark* b) {
  b->ArgNames({"threads", "int8"})->UseRealTime();
  for (const int64_t threads : {1, 2}) b->Args({threads, 0})->Args({threads, 1});
}
BENCHMARK(dequant_session<DType::kQ8_0>)->Name("dequant_session_q8_0")->Apply(sessions);
BENCHMARK(dequant_session<DType::kQ4_0>)->Name("dequant_session_q4_0")->Apply(sessions);

}  // namespace
}  // namespace rlx::cpu
#endif  // HWY_ONCE
