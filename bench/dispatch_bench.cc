// What a step costs beyond its work: a chain of steps on one element.
#include <benchmark/benchmark.h>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/build.h"
#include "rlx/runtime/session.h"

namespace rlx {
namespace {

void step_dispatch(benchmark::State& state) {
  constexpr int kSteps = 1000;
  Graph g;
  Builder b(g);
  Value v = input(b, "x", DType::kF32, {1});
  for (int i = 0; i < kSteps; ++i) v = sigmoid(b, v);
  g.add_output("y", v);
  SessionOptions options;
  options.threads = int(state.range(0));
  Session session(cpu_device(), options);
  Executable e = session.compile(g);
  const Array in[] = {Array::full(DType::kF32, {1}, 0.5)};
  Array out[] = {Array::zeros(DType::kF32, {1})};
  for (auto _ : state) e.run_into(in, out);
  state.counters["ns_per_step"] = benchmark::Counter(
      kSteps * 1e-9, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(step_dispatch)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace rlx
