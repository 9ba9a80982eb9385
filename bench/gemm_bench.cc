// Matrix products against the machine, on one thread. Each row measures its ceiling between its own
// repetitions: the peak of fused multiply-adds, or the bandwidth of a plain read of the same
// weights. Rows report medians; `share` is achieved over ceiling.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/gemm_bench.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kPeakSteps = 20000;

// Returns the operations done; the sum goes to `sink`.
template <class T>
int64_t fused_multiply_adds(T* sink) {
  const hn::ScalableTag<T> d;
  constexpr int kChains = 12;
  hn::Vec<decltype(d)> acc[kChains];
  const auto x = hn::Set(d, T(0.999)), y = hn::Set(d, T(0.001));
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) acc[i] = hn::Set(d, T(i));
  for (int64_t s = 0; s < kPeakSteps; ++s) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) acc[i] = hn::MulAdd(acc[i], x, y);
  }
#pragma GCC unroll 12
  for (int i = 1; i < kChains; ++i) acc[0] = hn::Add(acc[0], acc[i]);
  *sink = hn::GetLane(acc[0]);
  return kPeakSteps * kChains * 2 * static_cast<int64_t>(hn::Lanes(d));
}
int64_t peak_f32(void* sink) { return fused_multiply_adds(static_cast<float*>(sink)); }
int64_t peak_f64(void* sink) { return fused_multiply_adds(static_cast<double*>(sink)); }

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "rlx/backend/cpu/gemm/gemm.h"

namespace rlx::cpu {
namespace {

HWY_EXPORT(peak_f32);
HWY_EXPORT(peak_f64);

// Memory filled with small numbers.
class Buffer {
 public:
  Buffer(size_t bytes, bool doubles) : memory_(int64_t(bytes)) {
    uint32_t x = 1;
    const auto next = [&x] {
      return static_cast<double>((x = x * 1664525 + 1013904223) >> 16) / 65536 - 0.5;
    };
    const int64_t size = memory_.size();
    if (doubles) {
      for (int64_t i = 0; i < size / 8; ++i) static_cast<double*>(data())[i] = next();
    } else {
      for (int64_t i = 0; i < size / 4; ++i) static_cast<float*>(data())[i] = float(next());
    }
  }
  void* data() const { return memory_.data(); }

 private:
  bench::HugePages memory_;
};

double peak(bool doubles) {
  double sink = 0;
  const double start = bench::seconds();
  const int64_t work =
      doubles ? HWY_DYNAMIC_DISPATCH(peak_f64)(&sink) : HWY_DYNAMIC_DISPATCH(peak_f32)(&sink);
  benchmark::DoNotOptimize(sink);
  return static_cast<double>(work) / (bench::seconds() - start);
}

void run_all(const GemmPlan& plan, const GemmArgs& args) {
  for (int phase = 0; phase < plan.phases(); ++phase) {
    for (int64_t chunk = 0; chunk < plan.chunks(phase); ++chunk) plan.run(phase, chunk, args);
  }
}

struct Operands {
  Operands(bool doubles, int64_t m, int64_t n, int64_t k, bool prepacked, bool transposed)
      : plan(doubles ? GemmElement::kF64 : GemmElement::kF32,
             GemmShape{m, n, k, {0}, {0}, {0}, k, 1, transposed ? 1 : n, transposed ? k : 1, n},
             prepacked),
        a(size(doubles, m * k), doubles),
        c(size(doubles, m * n), doubles),
        scratch(plan.scratch_bytes() + 64, doubles),
        thread_scratch(plan.thread_scratch_bytes() + 64, doubles) {
    args.a = a.data();
    args.c = c.data();
    args.scratch = scratch.data();
    args.thread_scratch = thread_scratch.data();
  }
  static size_t size(bool doubles, int64_t count) {
    return static_cast<size_t>(count) * (doubles ? 8 : 4);
  }

  GemmPlan plan;
  Buffer a, c, scratch, thread_scratch;
  GemmArgs args;
};

// Times the plan and the peak in turn.
void report_compute(benchmark::State& state, const GemmPlan& plan, const GemmArgs& args,
                    double work, bool doubles) {
  const int repeat = static_cast<int>(std::max(1.0, 2e7 / work));  // at least 0.1 ms at a time
  std::vector<double> times, peaks;
  for (auto _ : state) {
    peaks.push_back(peak(doubles));
    const double start = bench::seconds();
    for (int i = 0; i < repeat; ++i) run_all(plan, args);
    const double time = (bench::seconds() - start) / repeat;
    times.push_back(time);
    state.SetIterationTime(time);
  }
  state.counters["gflops"] = work / bench::median(times) * 1e-9;
  state.counters["ceiling"] = bench::median(peaks) * 1e-9;
  state.counters["share"] = work / bench::median(times) / bench::median(peaks);
  state.SetLabel(plan.path());
}

// B forms: 0 rows, 1 transposed, 2 packed before.
template <bool kDoubles>
void gemm(benchmark::State& state) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2), form = state.range(3);
  Operands o(kDoubles, m, n, k, form == 2, form == 1);
  const Buffer b(GemmPlan::packed_b_bytes(kDoubles ? GemmElement::kF64 : GemmElement::kF32, n, k),
                 kDoubles);
  o.args.b = b.data();
  const double work =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  run_all(o.plan, o.args);
  report_compute(state, o.plan, o.args, work, kDoubles);
}

// Many small products, as in attention: scores Q * K^T (form 1) and their product with V (form 0).
void batched(benchmark::State& state) {
  const int64_t batch = state.range(0), m = state.range(1), n = state.range(2), k = state.range(3);
  const bool transposed = state.range(4) == 1;
  GemmShape shape{m, n, k, {}, {}, {}, k, 1, transposed ? 1 : n, transposed ? k : 1, n};
  shape.a_offset.clear(), shape.b_offset.clear(), shape.c_offset.clear();
  for (int64_t i = 0; i < batch; ++i) {
    shape.a_offset.push_back(i * m * k);
    shape.b_offset.push_back(i * k * n);
    shape.c_offset.push_back(i * m * n);
  }
  const GemmPlan plan(GemmElement::kF32, shape, false);
  const auto size = [&](int64_t count) {
    return static_cast<size_t>(batch * count) * sizeof(float);
  };
  const Buffer a(size(m * k), false), b(size(k * n), false), c(size(m * n), false);
  const Buffer scratch(plan.scratch_bytes(), false),
      thread_scratch(plan.thread_scratch_bytes(), false);
  const GemmArgs args{a.data(), b.data(), c.data(), scratch.data(), thread_scratch.data(), {}};
  run_all(plan, args);
  report_compute(state, plan, args, 2.0 * static_cast<double>(batch * m * n * k), false);
}

// Few rows; the weights rotate through more than 256 MB, so they come from memory.
void few_rows(benchmark::State& state) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  Operands o(false, m, n, k, true, false);
  const int64_t bytes = static_cast<int64_t>(GemmPlan::packed_b_bytes(GemmElement::kF32, n, k));
  const int64_t copies = (int64_t{400} << 20) / bytes + 1;
  const Buffer b(static_cast<size_t>(copies * bytes), false);
  bench::report_stream(state, static_cast<const uint8_t*>(b.data()), copies * bytes, bytes,
                       [&](const uint8_t* weights) {
                         o.args.b = weights;
                         run_all(o.plan, o.args);
                       });
  state.SetLabel(o.plan.path());
}

const std::vector<std::string> kNames{"m", "n", "k", "form"};

void squares(benchmark::internal::Benchmark* b) {
  b->ArgNames(kNames)->UseManualTime()->Iterations(31);
  for (const int64_t size : {64, 128, 256, 512, 1024}) {
    for (const int64_t form : {0, 1, 2}) b->Args({size, size, size, form});
  }
}
BENCHMARK(gemm<false>)
    ->Name("gemm_f32")
    ->Apply(squares)
    ->Args({8, 8, 8, 0})
    ->Args({16, 16, 16, 0})
    ->Args({2048, 64, 512, 0})
    ->Args({4096, 10, 1024, 2})
    ->Args({4096, 1, 1024, 0})
    ->Args({1, 4096, 1024, 1})
    ->Args({1024, 1000, 1000, 2});
BENCHMARK(gemm<true>)->Name("gemm_f64")->Apply(squares);
BENCHMARK(batched)
    ->Name("gemm_batched_f32")
    ->ArgNames({"batch", "m", "n", "k", "form"})
    ->Args({48, 256, 256, 64, 1})
    ->Args({48, 256, 64, 256, 0})
    ->Args({48, 1, 1024, 64, 1})
    ->Args({48, 1, 64, 1024, 0})
    ->Args({1000, 16, 16, 16, 0})
    ->UseManualTime()
    ->Iterations(31);
BENCHMARK(few_rows)
    ->Name("gemm_few_rows_f32")
    ->ArgNames({"m", "n", "k"})
    ->ArgsProduct({{1, 2, 4, 8, 16, 32}, {4096}, {4096}})
    ->UseManualTime()
    ->Iterations(31);

}  // namespace
}  // namespace rlx::cpu
#endif  // HWY_ONCE
