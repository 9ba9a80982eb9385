// Lstm against its decomposition (a product for all steps, then a Scan whose body is a product and
// elementwise calls) at equal inputs with frozen weights: targets are at least its speed. The
// ceiling is the speed of the products, counter flops/s, to be held against gemm_bench.

#include <benchmark/benchmark.h>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/half.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/build.h"
#include "rlx/ops/derive.h"
#include "rlx/ops/lstm.h"
#include "rlx/runtime/session.h"

namespace rlx {

RLX_USE_OP(Lstm);

namespace {

using benchmark::Counter;

float value(uint32_t& seed) {
  return (float((seed = seed * 1664525u + 1013904223u) >> 8) / float(1 << 23) - 1) / 8;
}

template <class T>
Array noise_of(DType dtype, const Dims& shape) {
  Array a = Array::uninitialized(dtype, shape);
  uint32_t seed = 1;
  for (T& v : a.mutable_data<T>()) v = T(value(seed));
  return a;
}

Array noise(DType dtype, const Dims& shape) {
  return dtype == DType::kF32 ? noise_of<float>(dtype, shape) : noise_of<bf16>(dtype, shape);
}

struct Size {
  int64_t batch, steps, input, hidden;
};

// x is an input, the weights are frozen params.
Graph lstm_graph(const Size& n, DType dtype, bool decomposed) {
  LstmAttrs attrs;
  attrs.hidden_size = n.hidden;
  const std::vector<TensorType> types = {{dtype, {n.batch, n.steps, n.input}},
                                         {dtype, {4 * n.hidden * n.input}},
                                         {dtype, {4 * n.hidden * n.hidden}},
                                         {dtype, {4 * n.hidden}}};
  Graph g;
  Builder b(g);
  std::vector<Value> operands = {input(b, "x", dtype, types[0].shape)};
  const char* const names[] = {"", "w_ih", "w_hh", "bias"};
  for (size_t i = 1; i < types.size(); ++i) {
    operands.push_back(param(b, names[i], dtype, types[i].shape));
  }
  if (!decomposed) {
    const LstmResults r = lstm(b, operands[0], operands[1], operands[2], operands[3], attrs, {});
    g.add_output("y", r.y);
    return g;
  }
  const Graph body = expand_to_graph(kLstmOp, Attrs::of(kLstmOp.fields, attrs), types);
  g.add_output("y", inline_graph(b, body, operands)[0]);
  return g;
}

void run(benchmark::State& state, bool decomposed) {
  const Size n{state.range(0), state.range(1), state.range(2), state.range(2)};
  const auto dtype = state.range(4) ? DType::kBF16 : DType::kF32;
  SessionOptions options;
  options.threads = int(state.range(3));
  Session session(cpu_device(), options);
  session.weights().set("w_ih", noise(dtype, {4 * n.hidden * n.input}));
  session.weights().set("w_hh", noise(dtype, {4 * n.hidden * n.hidden}));
  session.weights().set("bias", noise(dtype, {4 * n.hidden}));
  Executable e = session.compile(lstm_graph(n, dtype, decomposed));
  const std::vector<Array> inputs = {noise(dtype, {n.batch, n.steps, n.input})};
  std::vector<Array> outputs = e.run(inputs);
  for (auto _ : state) e.run_into(inputs, outputs);
  const double products = double(n.batch * n.steps * 4 * n.hidden) * double(n.input + n.hidden);
  state.counters["flops"] = Counter(2 * products, Counter::kIsIterationInvariantRate);
}

void lstm_native(benchmark::State& state) { run(state, false); }
void lstm_composition(benchmark::State& state) { run(state, true); }

void sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"batch", "steps", "hidden", "threads", "bf16"})
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
  for (const int64_t threads : {1, 2}) {
    b->Args({1, 100, 64, threads, 0});
    b->Args({1, 100, 512, threads, 0});
    b->Args({1, 1, 512, threads, 0});
    b->Args({16, 50, 128, threads, 0});
    b->Args({64, 50, 256, threads, 0});
    b->Args({64, 50, 256, threads, 1});
    b->Args({512, 20, 20, threads, 0});
  }
}

BENCHMARK(lstm_native)->Apply(sizes);
BENCHMARK(lstm_composition)->Apply(sizes);

}  // namespace
}  // namespace rlx
