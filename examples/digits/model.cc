#include "examples/digits/model.h"

#include <cmath>

#include "rlx/ir/builder.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/build.h"
#include "rlx/ops/conv.h"
#include "rlx/ops/pool.h"
#include "rlx/runtime/eval.h"
#include "rlx/transform/grad.h"

namespace digits {
namespace {

using rlx::Builder;
using rlx::DType;
using rlx::Graph;
using rlx::Shape;
using rlx::Value;

constexpr double kMomentum = 0.9;
constexpr double kWeightDecay = 5e-4;

struct WeightSpec {
  std::string name;
  Shape shape;
  int64_t fan_in;  // inputs of one output; 0 for what starts at zero
};

// In the order in which classify() takes them.
const std::vector<WeightSpec>& weight_specs() {
  static const std::vector<WeightSpec> specs = {
      {"conv1.weight", {16, 1, 3, 3}, 9},    {"conv1.bias", {16, 1, 1}, 0},
      {"conv2.weight", {32, 16, 3, 3}, 144}, {"conv2.bias", {32, 1, 1}, 0},
      {"dense1.weight", {512, 64}, 512},     {"dense1.bias", {64}, 0},
      {"dense2.weight", {64, 10}, 64},       {"dense2.bias", {10}, 0},
  };
  return specs;
}

std::string momentum_of(const std::string& weight) { return weight + ".momentum"; }

// The network: images [n, 1, 8, 8] to logits [n, 10]. Functions such as add() append one op each
// to the builder's graph; nothing is computed yet.
Value classify(Builder& b, Value images, const std::vector<Value>& w) {
  rlx::ConvAttrs same_size;
  same_size.padding = {1, 1};
  rlx::PoolAttrs halve;  // takes the maximum of each 2x2
  halve.kernel_size = {2, 2};

  Value x = relu(b, add(b, conv(b, images, w[0], same_size), w[1]));  // [n, 16, 8, 8]
  x = relu(b, add(b, conv(b, x, w[2], same_size), w[3]));             // [n, 32, 8, 8]
  x = pool(b, x, halve);                                              // [n, 32, 4, 4]
  x = reshape(b, x, {b.shape(x)[0], 512});
  x = relu(b, add(b, matmul(b, x, w[4]), w[5]));
  return add(b, matmul(b, x, w[6]), w[7]);
}

// The mean loss of a batch as a function of images, labels and weights: all of them inputs.
Graph loss_graph(int64_t batch) {
  Graph graph("loss");
  Builder b(graph);
  const Value images = input(b, "images", DType::kF32, {batch, 1, kSide, kSide});
  const Value labels = input(b, "labels", DType::kI64, {batch});
  std::vector<Value> weights;
  for (const auto& [name, shape, fan_in] : weight_specs()) {
    weights.push_back(input(b, name, DType::kF32, shape));
  }
  const Value logits = classify(b, images, weights);
  graph.add_output("loss", mean(b, softmax_cross_entropy(b, logits, labels), {0}));
  return graph;
}

}  // namespace

int64_t parameter_count() {
  int64_t count = 0;
  for (const WeightSpec& w : weight_specs()) count += w.shape.num_elements().value();
  return count;
}

std::vector<std::string> weight_names() {
  std::vector<std::string> names;
  for (const WeightSpec& w : weight_specs()) names.push_back(w.name);
  return names;
}

Graph inference_graph() {
  Graph graph("digits");
  Builder b(graph);
  // A symbolic size: the executable takes any batch, and compiles once per size that it meets.
  const Value images = input(b, "images", DType::kF32, {rlx::Dim::symbol("n"), 1, kSide, kSide});
  std::vector<Value> weights;
  for (const auto& [name, shape, fan_in] : weight_specs()) {
    weights.push_back(param(b, name, DType::kF32, shape));
  }
  graph.add_output("logits", classify(b, images, weights));
  return graph;
}

Graph training_graph(int64_t batch) {
  // grad() turns the loss into a graph with outputs loss, d_conv1.weight, d_conv1.bias, ...
  const Graph gradients = rlx::grad(loss_graph(batch), "loss", weight_names());

  Graph graph("training_step");
  Builder b(graph);
  std::vector<Value> arguments = {
      input(b, "images", DType::kF32, {batch, 1, kSide, kSide}),
      input(b, "labels", DType::kI64, {batch}),
  };
  const Value rate = input(b, "rate", DType::kF32, {});
  for (const auto& [name, shape, fan_in] : weight_specs()) {
    arguments.push_back(param(b, name, DType::kF32, shape, /*is_mutable=*/true));
  }
  const std::vector<Value> results = inline_graph(b, gradients, arguments);
  graph.add_output("loss", results[0]);

  for (size_t i = 0; i < weight_specs().size(); ++i) {
    const auto& [name, shape, fan_in] = weight_specs()[i];
    const Value weight = arguments[2 + i];
    const Value momentum = param(b, momentum_of(name), DType::kF32, shape, /*is_mutable=*/true);
    Value gradient = results[1 + i];
    if (fan_in > 0) gradient = add(b, gradient, mul(b, weight, kWeightDecay));
    const Value new_momentum = add(b, mul(b, momentum, kMomentum), gradient);
    graph.add_update(momentum_of(name), new_momentum);
    graph.add_update(name, sub(b, weight, mul(b, new_momentum, rate)));
  }
  return graph;
}

Weights initial_state(const rlx::Device& device, uint64_t seed) {
  // He et al. (2015): a variance of 2 / fan_in keeps the scale of activations through relu layers.
  Graph graph("initial_weights");
  Builder b(graph);
  const Value seed_input = input(b, "seed", DType::kU64, {});
  Weights state;
  for (size_t i = 0; i < weight_specs().size(); ++i) {
    const auto& [name, shape, fan_in] = weight_specs()[i];
    const rlx::Array zeros = rlx::Array::zeros(DType::kF32, shape.static_dims());
    state[momentum_of(name)] = zeros;
    if (fan_in == 0) {
      state[name] = zeros;
      continue;
    }
    // Another key for each weight, so that their draws are independent.
    const double deviation = std::sqrt(2.0 / double(fan_in));
    graph.add_output(name, rng_normal(b, DType::kF32, shape, 0, deviation, int64_t(i), seed_input));
  }
  const std::vector<rlx::Array> draws =
      rlx::eval(device, graph, std::vector{rlx::Array::scalar(seed)});
  for (size_t i = 0; i < draws.size(); ++i) state[graph.outputs()[i].name] = draws[i];
  return state;
}

}  // namespace digits
