// Attention against its unfused composition (products, softmax, product, each a step of its plan)
// at equal inputs: targets are at least its speed at 128 keys and clearly more beyond. Then
// threads, gradients, and steps of decoding, which read every live key and value once: their
// ceiling is the bandwidth of a plain read, the counter bytes/s is to be held against stream_read.

#include <benchmark/benchmark.h>

#include <array>
#include <numeric>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/attention.h"
#include "rlx/ops/build.h"
#include "rlx/runtime/session.h"
#include "rlx/transform/grad.h"

namespace rlx {
namespace {

using benchmark::Counter;
constexpr int64_t kHeads = 8, kWidth = 64;

Array noise(Dims shape) {
  Array a = Array::uninitialized(DType::kF32, std::move(shape));
  uint32_t seed = 1;
  for (float& v : a.mutable_data<float>()) {
    v = float((seed = seed * 1664525u + 1013904223u) >> 8) / float(1 << 23) - 1;
  }
  return a;
}

constexpr AttentionAttrs kHeadsFirst{AttentionLayout::kBhsd};

Dims head_shape(AttentionLayout layout, int64_t n) {
  if (layout == AttentionLayout::kBhsd) return {1, kHeads, n, kWidth};
  return {1, n, kHeads, kWidth};
}

Graph attention_graph(int64_t rows, int64_t keys, const AttentionAttrs& attrs, bool live) {
  Graph g;
  Builder b(g);
  const Dims many = head_shape(attrs.layout, keys), few = head_shape(attrs.layout, rows);
  const Value q = input(b, "q", DType::kF32, Shape(std::span(few)));
  const Value k = input(b, "k", DType::kF32, Shape(std::span(many)));
  const Value v = input(b, "v", DType::kF32, Shape(std::span(many)));
  AttentionExtras extras;
  if (live) extras.kv_len = input(b, "kv_len", DType::kI64, Shape{});
  g.add_output("y", attention(b, q, k, v, attrs, extras));
  return g;
}

Graph composition_graph(int64_t n) {
  Graph g;
  Builder b(g);
  const Shape shape{1, kHeads, n, kWidth};
  const Value q = input(b, "q", DType::kF32, shape), k = input(b, "k", DType::kF32, shape);
  const Value v = input(b, "v", DType::kF32, shape);
  const Value scores = mul(b, matmul(b, q, swap_last_axes(b, k)), 0.125);
  g.add_output("y", matmul(b, softmax(b, scores), v));
  return g;
}

// dq, dk and dv for a cotangent of ones.
Graph gradient_graph(int64_t n) {
  Graph g;
  Builder b(g);
  const Shape shape{1, kHeads, n, kWidth};
  const Value q = input(b, "q", DType::kF32, shape), k = input(b, "k", DType::kF32, shape);
  const Value v = input(b, "v", DType::kF32, shape);
  g.add_output("loss", sum(b, attention(b, q, k, v, kHeadsFirst), {0, 1, 2, 3}));
  return grad(g, "loss", {"q", "k", "v"});
}

// The graph's inputs are q, k, v and maybe kv_len.
void run_graph(benchmark::State& state, const Graph& graph, int threads, int64_t live = -1) {
  SessionOptions options;
  options.threads = threads;
  Session session(cpu_device(), options);
  Executable e = session.compile(graph);
  std::vector<Array> inputs;
  for (size_t i = 0; i < 3; ++i) {
    inputs.push_back(noise(graph.type(graph.inputs()[i]).shape.static_dims()));
  }
  if (live >= 0) inputs.push_back(Array::scalar<int64_t>(live));
  std::vector<Array> outputs = e.run(inputs);
  for (auto _ : state) e.run_into(inputs, outputs);
  state.counters["arena_bytes"] = double(e.estimate().arena);
}

// The composition's work, whatever a mask leaves out.
void count_flops(benchmark::State& state, int64_t rows, int64_t keys, double products) {
  state.counters["flops"] = Counter(products * 2 * double(kHeads * rows * keys * kWidth),
                                    Counter::kIsIterationInvariantRate);
}

void attention_forward(benchmark::State& state) {
  const int64_t n = state.range(0);
  run_graph(state, attention_graph(n, n, kHeadsFirst, false), int(state.range(1)));
  count_flops(state, n, n, 2);
}

void attention_composition(benchmark::State& state) {
  const int64_t n = state.range(0);
  run_graph(state, composition_graph(n), int(state.range(1)));
  count_flops(state, n, n, 2);
}

void attention_causal(benchmark::State& state) {
  const int64_t n = state.range(0);
  const AttentionAttrs a{AttentionLayout::kBhsd, AttentionMask::kCausal};
  run_graph(state, attention_graph(n, n, a, false), int(state.range(1)));
  count_flops(state, n, n, 1);
}

void attention_gradient(benchmark::State& state) {
  const int64_t n = state.range(0);
  run_graph(state, gradient_graph(n), int(state.range(1)));
  count_flops(state, n, n, 9);
}

void attention_step(benchmark::State& state) {
  const int64_t keys = state.range(0), live = state.range(1);
  const AttentionAttrs a{AttentionLayout(state.range(3)), AttentionMask::kCausal};
  run_graph(state, attention_graph(1, keys, a, true), int(state.range(2)), live);
  state.counters["bytes"] =
      Counter(double(2 * kHeads * live * kWidth * 4), Counter::kIsIterationInvariantRate);
}

// A plain read, on one thread.
void stream_read(benchmark::State& state) {
  const Array a = noise({state.range(0) / 4});
  const float* p = a.data<float>().data();
  const int64_t n = a.num_elements();
  for (auto _ : state) {
    float sums[64] = {};
    for (int64_t i = 0; i + 64 <= n; i += 64) {
      for (int64_t l = 0; l < 64; ++l) sums[l] += p[i + l];
    }
    benchmark::DoNotOptimize(std::accumulate(sums, sums + 64, 0.f));
  }
  state.counters["bytes"] = Counter(double(n) * 4, Counter::kIsIterationInvariantRate);
}

void lengths(benchmark::internal::Benchmark* b) {
  b->ArgNames({"n", "threads"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  for (const int64_t n : {64, 128, 512, 2048}) {
    for (const int64_t threads : {1, 2}) b->Args({n, threads});
  }
}

BENCHMARK(attention_forward)->Apply(lengths);
BENCHMARK(attention_composition)->Apply(lengths);
BENCHMARK(attention_causal)->Apply(lengths);
BENCHMARK(attention_gradient)->Apply(lengths);
BENCHMARK(attention_step)
    ->ArgNames({"keys", "live", "threads", "layout"})
    ->Args({4096, 64, 1, 1})
    ->Args({4096, 4096, 1, 1})
    ->Args({4096, 4096, 1, 0})
    ->Args({4096, 4096, 2, 0})
    ->Args({65536, 65536, 1, 0})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(stream_read)
    ->ArgName("bytes")
    ->Arg(16 << 20)
    ->Arg(256 << 20)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace rlx
