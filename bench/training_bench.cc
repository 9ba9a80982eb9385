// The training step of the digits example: compiling it (target: 20 ms) and running it. The ceiling
// of a step is its flops at the rate of the machine's best matrix product; the counter flops/s is
// to be held against gemm_bench's.

#include <benchmark/benchmark.h>

#include <array>
#include <map>

#include "examples/digits/model.h"
#include "rlx/backend/cpu/cpu.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/activation.h"
#include "rlx/ops/build.h"
#include "rlx/runtime/session.h"
#include "rlx/transform/grad.h"

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

// fuse 0 is the step without regions and groups, in the same run.
void training_step(benchmark::State& state) {
  const int64_t batch = state.range(0);
  SessionOptions options;
  options.threads = int(state.range(1));
  Session session(cpu_device(), options);
  session.weights().set(digits::initial_state(cpu_device(), 1));
  CompileOptions compile;
  compile.fuse = state.range(2) != 0;
  Executable step = session.compile(digits::training_graph(batch), compile);
  const std::array<Array, 3> inputs = {
      Array::full(DType::kF32, {batch, 1, digits::kSide, digits::kSide}, 0.5),
      Array::zeros(DType::kI64, {batch}), Array::scalar(0.f)};  // rate 0: the weights stay
  std::array<Array, 1> outputs = {Array::scalar(0.f)};
  for (auto _ : state) step.run_into(inputs, outputs);
  state.counters["flops"] = Counter(step.report().flops(), Counter::kIsIterationInvariantRate);
  state.counters["arena_bytes"] = double(step.estimate().arena);
}
BENCHMARK(training_step)
    ->ArgNames({"batch", "threads", "fuse"})
    ->Args({32, 1, 0})
    ->Args({32, 1, 1})
    ->Args({32, 2, 0})
    ->Args({32, 2, 1})
    ->Args({256, 2, 0})
    ->Args({256, 2, 1})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

// A transformer's feed-forward block, y = x + w2 gelu(w1 norm(x) + b1) + b2: its loss, gradients
// and a momentum step, or (train 0) the block alone with frozen weights.
class Block {
 public:
  static constexpr int64_t kWidth = 256, kInner = 1024;

  static Graph training(int64_t rows) {
    Graph loss("loss");
    {
      Builder b(loss);
      const Value x = input(b, "x", DType::kF32, {rows, kWidth});
      const Value y = forward(b, x, inputs(b));
      loss.add_output("loss", mean(b, mul(b, y, y), {0, 1}));
    }
    const Graph gradients = grad(loss, "loss", names());
    Graph g("block");
    Builder b(g);
    std::vector<Value> arguments{input(b, "x", DType::kF32, {rows, kWidth})};
    for (size_t i = 0; i < names().size(); ++i) {
      arguments.push_back(param(b, names()[i], DType::kF32, shapes()[i], true));
    }
    const std::vector<Value> results = inline_graph(b, gradients, arguments);
    g.add_output("loss", results[0]);
    for (size_t i = 0; i < names().size(); ++i) {
      const std::string name = names()[i] + ".momentum";
      const Value old = param(b, name, DType::kF32, shapes()[i], true);
      const Value momentum = add(b, mul(b, old, 0.9), results[1 + i]);
      g.add_update(name, momentum);
      g.add_update(names()[i], sub(b, arguments[1 + i], mul(b, momentum, 1e-4)));
    }
    return g;
  }

  static Graph inference(int64_t rows) {
    Graph g("block");
    Builder b(g);
    std::vector<Value> weights;
    for (size_t i = 0; i < names().size(); ++i) {
      weights.push_back(param(b, names()[i], DType::kF32, shapes()[i]));
    }
    g.add_output("y", forward(b, input(b, "x", DType::kF32, {rows, kWidth}), weights));
    return g;
  }

  static std::map<std::string, Array> weights(const Graph& g) {
    std::map<std::string, Array> all;
    for (Value v : g.params()) {
      all[g.name_of(v)] = Array::full(DType::kF32, g.type(v).shape.static_dims(), 0.01);
    }
    return all;
  }

 private:
  static const std::vector<std::string>& names() {
    static const std::vector<std::string> n{"gamma", "beta", "w1", "b1", "w2", "b2"};
    return n;
  }
  static const std::vector<Shape>& shapes() {
    static const std::vector<Shape> s{{kWidth}, {kWidth},         {kWidth, kInner},
                                      {kInner}, {kInner, kWidth}, {kWidth}};
    return s;
  }
  static std::vector<Value> inputs(Builder& b) {
    std::vector<Value> all;
    for (size_t i = 0; i < names().size(); ++i) {
      all.push_back(input(b, names()[i], DType::kF32, shapes()[i]));
    }
    return all;
  }
  static Value forward(Builder& b, Value x, const std::vector<Value>& w) {
    const Value h = add(b, matmul(b, layer_norm(b, x, w[0], w[1]), w[2]), w[3]);
    const Value y = matmul(b, activation(b, ActivationKind::kGelu, h), w[4]);
    return add(b, add(b, y, w[5]), x);
  }
};

void training_block(benchmark::State& state) {
  const int64_t rows = state.range(0);
  SessionOptions options;
  options.threads = int(state.range(1));
  Session session(cpu_device(), options);
  const Graph g = state.range(2) != 0 ? Block::training(rows) : Block::inference(rows);
  session.weights().set(Block::weights(g));
  CompileOptions compile;
  compile.fuse = state.range(3) != 0;
  Executable step = session.compile(g, compile);
  const std::array<Array, 1> inputs = {Array::full(DType::kF32, {rows, Block::kWidth}, 0.5)};
  std::array<Array, 1> outputs = {Array::zeros(DType::kF32, step.plan().outputs[0].dims)};
  for (auto _ : state) step.run_into(inputs, outputs);
  state.counters["flops"] = Counter(step.report().flops(), Counter::kIsIterationInvariantRate);
  state.counters["bytes"] = step.report().bytes();
  state.counters["arena_bytes"] = double(step.estimate().arena);
}
BENCHMARK(training_block)
    ->ArgNames({"rows", "threads", "train", "fuse"})
    ->ArgsProduct({{32, 512}, {1, 2}, {0, 1}, {0, 1}})
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
