// What packed forms of mutable params are worth: a layer of an inference graph, compiled for either
// purpose, and one that another run changes before every run.
#include <benchmark/benchmark.h>

#include "bench/measure.h"
#include "rlx/backend/cpu/cpu.h"
#include "rlx/ops/build.h"
#include "rlx/runtime/session.h"

namespace rlx {
namespace {

constexpr int64_t kWidth = 1024;

void layer(benchmark::State& state) {
  const int64_t rows = state.range(0);
  const bool changes = state.range(1) != 0;
  Graph infer("layer"), train("step");
  {
    Builder b(infer);
    const Value x = input(b, "x", DType::kF32, {rows, kWidth});
    infer.add_output("y", matmul(b, x, param(b, "w", DType::kF32, {kWidth, kWidth}, true)));
  }
  {
    Builder b(train);
    const Value w = param(b, "w", DType::kF32, {kWidth, kWidth}, true);
    train.add_update("w", add(b, w, scalar(b, DType::kF32, 1.0)));
  }
  SessionOptions one;
  one.threads = 1;
  Session session(cpu_device(), one);
  session.weights().set("w", Array::full(DType::kF32, {kWidth, kWidth}, 0.5));
  const auto compiled = [&](Purpose purpose) {
    CompileOptions options;
    options.purpose = purpose;
    return session.compile(infer, options);
  };
  Executable packed = compiled(Purpose::kInference), plain = compiled(Purpose::kTraining);
  Executable step = session.compile(train);
  const std::vector<Array> in{Array::full(DType::kF32, {rows, kWidth}, 0.25)};
  std::vector<Array> out(1), none;
  const auto time = [&](Executable& e) {
    if (changes) step.run_into({}, none);
    const double start = bench::seconds();
    e.run_into(in, out);
    return bench::seconds() - start;
  };
  std::vector<double> with, without;
  for (auto _ : state) {
    with.push_back(time(packed));
    without.push_back(time(plain));
    state.SetIterationTime(with.back());
  }
  state.counters["plain/packed"] = bench::median(without) / bench::median(with);
}

BENCHMARK(layer)
    ->Name("purpose")
    ->ArgNames({"rows", "changes"})
    ->ArgsProduct({{1, 8, 32, 128, 512}, {0, 1}})
    ->UseManualTime()
    ->Iterations(31);

}  // namespace
}  // namespace rlx
