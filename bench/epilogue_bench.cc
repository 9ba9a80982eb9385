// What comes after a matrix product, within it or as passes of its own: both run in turns, so that
// a machine that is busy now and then is so for both. The counter `ratio` is the median time within
// the product over the median alone (below 1: fusion gains), `best` that of the least times;
// `alone_us` is the median alone.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "bench/measure.h"
#include "rlx/backend/cpu/cpu.h"
#include "rlx/ops/activation.h"
#include "rlx/ops/build.h"
#include "rlx/runtime/session.h"

namespace rlx {
namespace {

enum Form { kBias, kBiasRelu, kBiasGelu, kBiasGeluApprox, kResidual, kBiasResidual, kKeptGelu };

// Not fused, because what follows sees the product in another shape.
Graph product_graph(int64_t rows, int64_t columns, int64_t k, int64_t form, bool fused) {
  Graph g("product");
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {rows, k});
  Value r = input(b, "r", DType::kF32, {rows, columns});
  const Value w = param(b, "w", DType::kF32, {k, columns});
  const Value c = param(b, "c", DType::kF32, {columns});
  Value y = matmul(b, x, w);
  if (!fused) {
    y = reshape(b, y, {1, rows, columns});
    r = reshape(b, r, {1, rows, columns});
  }
  if (form != kResidual) y = add(b, y, c);
  if (form == kKeptGelu) g.add_output("before", y);
  if (form == kBiasRelu) y = relu(b, y);
  if (form == kBiasGelu || form == kKeptGelu) y = activation(b, ActivationKind::kGelu, y);
  if (form == kBiasGeluApprox) y = activation(b, ActivationKind::kGeluApprox, y);
  if (form == kResidual || form == kBiasResidual) y = add(b, y, r);
  g.add_output("y", y);
  return g;
}

void product_epilogue(benchmark::State& state) {
  const int64_t rows = state.range(0), columns = state.range(1), k = state.range(2);
  SessionOptions options;
  options.threads = int(state.range(4));
  Session session(cpu_device(), options);
  session.weights().set({{"w", Array::full(DType::kF32, {k, columns}, 0.01)},
                         {"c", Array::full(DType::kF32, {columns}, 0.5)}});
  std::vector<Executable> runs;
  std::vector<std::vector<Array>> outputs;
  for (const bool fuse : {true, false}) {
    CompileOptions compile;
    compile.fuse_always = true;
    const Graph g = product_graph(rows, columns, k, state.range(3), fuse);
    runs.push_back(session.compile(g, compile));
    outputs.emplace_back();
    for (const PlanTensor& d : runs.back().plan().outputs) {
      outputs.back().push_back(Array::zeros(DType::kF32, d.dims));
    }
  }
  const std::array<Array, 2> inputs = {Array::full(DType::kF32, {rows, k}, 0.5),
                                       Array::full(DType::kF32, {rows, columns}, 0.25)};
  std::array<std::vector<double>, 2> times;
  for (auto _ : state) {
    for (size_t i = 0; i < 2; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      runs[i].run_into(inputs, outputs[i]);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      times[i].push_back(took.count());
    }
  }
  const auto least = [&](size_t i) { return *std::min_element(times[i].begin(), times[i].end()); };
  state.counters["best"] = least(0) / least(1);
  const double alone = bench::median(times[1]);
  state.counters["ratio"] = bench::median(times[0]) / alone;
  state.counters["alone_us"] = alone * 1e6;
}
BENCHMARK(product_epilogue)
    ->ArgNames({"rows", "columns", "k", "form", "threads"})
    ->ArgsProduct({{32, 512}, {256, 1024, 4096}, {256, 1024}, {0, 1, 2, 3, 4, 5, 6}, {1}})
    ->ArgsProduct({{32, 512}, {1024}, {256}, {0, 2, 5}, {2}})
    ->Iterations(101)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace rlx
