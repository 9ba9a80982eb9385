// Products with packed weights, few rows: weights rotate through more than 256 MB, so they come
// from memory. The ceiling of a row is a plain read of the same bytes between its repetitions, on
// the same thread; `share` is achieved over ceiling. Rows with many rows of x state the rate of
// operations instead, to be held against gemm_bench's peak.

#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "bench/measure.h"
#include "rlx/backend/cpu/cpu.h"
#include "rlx/backend/cpu/int8/int8_kernels.h"
#include "rlx/backend/cpu/kernels/packed_dot.h"
#include "rlx/base/array.h"
#include "rlx/ops/build.h"
#include "rlx/ops/dequant_matmul.h"
#include "rlx/runtime/session.h"

namespace rlx::cpu {
namespace {

// Blocks with small scales and any codes.
class Weights {
 public:
  Weights(DType packed, int64_t bytes) : memory_(bytes), bytes_(bytes) {
    uint8_t* p = memory_.data();
    const int64_t size = memory_.size();
    uint32_t x = 1;
    for (int64_t i = 0; i < size; ++i) p[i] = uint8_t((x = x * 1664525 + 1013904223) >> 24);
    const int64_t block = block_of(packed).bytes;
    const uint16_t scale = 0x2000;  // 2^-7
    for (int64_t i = 0; i + block <= size; i += block) std::memcpy(p + i, &scale, 2);
  }
  const uint8_t* data() const { return memory_.data(); }
  int64_t bytes() const { return bytes_; }

 private:
  bench::HugePages memory_;
  int64_t bytes_;
};

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
  bench::report_stream(state, w.data(), w.bytes(), bytes, [&](const uint8_t* weight) {
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
  bench::report_stream(state, w.data(), w.bytes(), bytes, [&](const uint8_t* weight) {
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
