// The training step of the digits example: compiling it (target: 20 ms) and running it. The ceiling
// of a step is its flops at the rate of the machine's best matrix product; the counter flops/s is
// to be held against gemm_bench's.

#include <benchmark/benchmark.h>

#include <array>

#include "examples/digits/model.h"
#include "rlx/backend/cpu/cpu.h"
#include "rlx/runtime/session.h"

namespace rlx {
namespace {

using benchmark::Counter;

void training_build(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(digits::training_graph(32));
}
BENCHMARK(training_build)->Unit(benchmark::kMillisecond);

// verify 0 leaves out the check of the graph after every pass.
void training_compile(benchmark::State& state) {
  const Graph graph = digits::training_graph(32);
  Session session(cpu_device());
  CompileOptions options;
  options.verify = state.range(0) != 0;
  for (auto _ : state) benchmark::DoNotOptimize(session.compile(graph, options));
  state.counters["plan_steps"] = double(session.compile(graph).plan().steps.size());
}
BENCHMARK(training_compile)->ArgName("verify")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void training_step(benchmark::State& state) {
  const int64_t batch = state.range(0);
  SessionOptions options;
  options.threads = int(state.range(1));
  Session session(cpu_device(), options);
  session.weights().set(digits::initial_state(cpu_device(), 1));
  Executable step = session.compile(digits::training_graph(batch));
  const std::array<Array, 3> inputs = {
      Array::full(DType::kF32, {batch, 1, digits::kSide, digits::kSide}, 0.5),
      Array::zeros(DType::kI64, {batch}), Array::scalar(0.f)};  // rate 0: the weights stay
  std::array<Array, 1> outputs = {Array::scalar(0.f)};
  for (auto _ : state) step.run_into(inputs, outputs);
  state.counters["flops"] = Counter(step.report().flops(), Counter::kIsIterationInvariantRate);
  state.counters["arena_bytes"] = double(step.estimate().arena);
}
BENCHMARK(training_step)
    ->ArgNames({"batch", "threads"})
    ->Args({32, 1})
    ->Args({32, 2})
    ->Args({256, 2})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

void inference(benchmark::State& state) {
  const int64_t batch = state.range(0);
  Session session(cpu_device());
  session.weights().set(digits::initial_state(cpu_device(), 1));
  Executable model = session.compile(digits::inference_graph());
  const std::array<Array, 1> inputs = {
      Array::full(DType::kF32, {batch, 1, digits::kSide, digits::kSide}, 0.5)};
  std::array<Array, 1> outputs = {Array::zeros(DType::kF32, {batch, digits::kClasses})};
  for (auto _ : state) model.run_into(inputs, outputs);
  state.counters["flops"] = Counter(model.report().flops(), Counter::kIsIterationInvariantRate);
}
BENCHMARK(inference)->ArgName("batch")->Arg(1)->Arg(32)->UseRealTime()->Unit(
    benchmark::kMicrosecond);

}  // namespace
}  // namespace rlx
