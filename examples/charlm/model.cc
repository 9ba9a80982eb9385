#include "examples/charlm/model.h"

#include <array>
#include <cmath>
#include <functional>
#include <string_view>

#include "rlx/ir/builder.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/activation.h"
#include "rlx/ops/attention.h"
#include "rlx/ops/build.h"
#include "rlx/ops/kv_append.h"
#include "rlx/ops/loops.h"
#include "rlx/ops/rms_norm.h"
#include "rlx/ops/rope.h"
#include "rlx/ops/sort.h"
#include "rlx/runtime/eval.h"
#include "rlx/transform/grad.h"

namespace charlm {
namespace {

using rlx::Builder;
using rlx::DType;
using rlx::Graph;
using rlx::Shape;
using rlx::Value;

constexpr double kBeta1 = 0.9, kBeta2 = 0.99, kEpsilon = 1e-8, kWeightDecay = 0.1;

struct WeightSpec {
  std::string name;
  Shape shape;
  double deviation;  // of the initial numbers; 0: all are 1
};

std::string layer_name(int64_t layer, std::string_view weight) {
  return "layer" + std::to_string(layer) + "." + std::string(weight);
}

std::vector<WeightSpec> weight_specs(const Config& c) {
  const auto deviation = [](int64_t inputs) { return 1 / std::sqrt(double(inputs)); };
  // Sums of many layers shall start as large as one.
  const double residual = 1 / std::sqrt(double(2 * c.layers));
  std::vector<WeightSpec> specs;
  specs.push_back({"embedding", {c.vocabulary, c.width}, deviation(c.width)});
  for (int64_t i = 0; i < c.layers; ++i) {
    const auto add = [&](std::string_view name, Shape shape, double d) {
      specs.push_back({layer_name(i, name), std::move(shape), d});
    };
    add("attention_norm", {c.width}, 0);
    add("qkv", {c.width, 3 * c.width}, deviation(c.width));
    add("attention_out", {c.width, c.width}, residual * deviation(c.width));
    add("mlp_norm", {c.width}, 0);
    add("mlp_in", {c.width, 2 * c.hidden}, deviation(c.width));
    add("mlp_out", {c.hidden, c.width}, residual * deviation(c.hidden));
  }
  specs.push_back({"norm", {c.width}, 0});
  return specs;
}

using Weights = std::map<std::string, Value>;

// The mean and the mean square of a weight's gradients.
std::string mean_of(const std::string& weight) { return weight + ".mean"; }
std::string square_of(const std::string& weight) { return weight + ".square"; }

// One kind of leaf for each weight.
template <class Leaf>
Weights make_weights(const Config& c, Leaf leaf) {
  Weights weights;
  for (const WeightSpec& w : weight_specs(c)) weights[w.name] = leaf(w.name, w.shape);
  return weights;
}

Weights frozen_weights(Builder& b, const Config& c) {
  return make_weights(c, [&](const std::string& name, const Shape& shape) {
    return param(b, name, DType::kF32, shape);
  });
}

// Angles of rotary embeddings (Su et al., 2021): position p turns pair i by p / 10000^(2i / width).
struct RopeTables {
  Value cos, sin;  // [context, head width / 2]
};

RopeTables rope_tables(Builder& b, const Config& c) {
  const int64_t pairs = c.width / c.heads / 2;
  rlx::Array cos = rlx::Array::uninitialized(DType::kF32, {c.context, pairs}), sin = cos.copy();
  for (int64_t p = 0; p < c.context; ++p) {
    for (int64_t i = 0; i < pairs; ++i) {
      const double angle = double(p) * std::pow(10000.0, -double(i) / double(pairs));
      cos.mutable_data<float>()[size_t(p * pairs + i)] = float(std::cos(angle));
      sin.mutable_data<float>()[size_t(p * pairs + i)] = float(std::sin(angle));
    }
  }
  return {constant(b, cos), constant(b, sin)};
}

// Where the forms of the decoder differ: given the turned q and the new k and v, all
// [batch, length, heads, head width], attention's result in the form of q.
using Attend = std::function<Value(int64_t layer, Value q, Value k, Value v)>;

// The decoder, from tokens [batch, length] to logits [batch, length, vocabulary]. Functions such as
// add() append one op each to the builder's graph; nothing is computed yet. Without `position` the
// tokens stand at 0, 1, ...
Value decode(Builder& b, const Config& c, Value tokens, const Weights& w, const Attend& attend,
             Value position = {}) {
  const Shape shape = b.shape(tokens);
  const RopeTables tables = rope_tables(b, c);
  const auto linear = [&](Value x, const std::string& name) { return matmul(b, x, w.at(name)); };
  const auto norm = [&](Value x, const std::string& name) {
    return rms_norm(b, x, w.at(name), {});
  };
  Value x = gather(b, w.at("embedding"), tokens);  // [batch, length, width]
  for (int64_t i = 0; i < c.layers; ++i) {
    const auto name = [&](std::string_view weight) { return layer_name(i, weight); };
    b.set_label("layer" + std::to_string(i));
    const Value qkv = linear(norm(x, name("attention_norm")), name("qkv"));
    const auto part = [&](int64_t index) {
      return reshape(b, narrow(b, qkv, 2, index * c.width, c.width),
                     {shape[0], shape[1], c.heads, c.width / c.heads});
    };
    const auto turn = [&](Value y) { return rope(b, y, tables.cos, tables.sin, {}, position); };
    const Value seen = attend(i, turn(part(0)), turn(part(1)), part(2));
    x = add(b, x, linear(reshape(b, seen, {shape[0], shape[1], c.width}), name("attention_out")));

    const Value both = linear(norm(x, name("mlp_norm")), name("mlp_in"));
    const Value gate = activation(b, rlx::ActivationKind::kSilu, narrow(b, both, 2, 0, c.hidden));
    const Value gated = mul(b, gate, narrow(b, both, 2, c.hidden, c.hidden));
    x = add(b, x, linear(gated, name("mlp_out")));
  }
  b.set_label("head");
  return matmul(b, norm(x, "norm"), swap_last_axes(b, w.at("embedding")));
}

Value decode_text(Builder& b, const Config& c, Value tokens, const Weights& w) {
  return decode(b, c, tokens, w, [&](int64_t, Value q, Value k, Value v) {
    rlx::AttentionAttrs causal;
    causal.mask = rlx::AttentionMask::kCausal;
    return attention(b, q, k, v, causal);
  });
}

Value mean_loss(Builder& b, const Config& c, Value text, const Weights& w) {
  const rlx::Dim length = b.shape(text)[1] - 1;
  const Value logits = decode_text(b, c, narrow(b, text, 1, 0, length), w);
  return mean(b, softmax_cross_entropy(b, logits, narrow(b, text, 1, 1, length)), {0, 1});
}

// Adds the updates of one weight by AdamW. `corrections` are 1 - beta^step of both moments.
void add_updates(Builder& b, const WeightSpec& spec, Value weight, Value gradient, Value rate,
                 const std::array<Value, 2>& corrections) {
  const auto moment = [&](const std::string& name, double beta, Value x) {
    const Value old = param(b, name, DType::kF32, spec.shape, /*is_mutable=*/true);
    const Value next = add(b, mul(b, old, beta), mul(b, x, 1 - beta));
    b.graph().add_update(name, next);
    return next;
  };
  const Value m = moment(mean_of(spec.name), kBeta1, gradient);
  const Value s = moment(square_of(spec.name), kBeta2, mul(b, gradient, gradient));
  const Value deviation = add(b, sqrt(b, div(b, s, corrections[1])), kEpsilon);
  Value change = div(b, div(b, m, corrections[0]), deviation);
  if (spec.shape.rank() > 1) change = add(b, change, mul(b, weight, kWeightDecay));
  b.graph().add_update(spec.name, sub(b, weight, mul(b, change, rate)));
}

// argmax(logits + temperature * g), g = -log(-log u) with u uniform: a draw from
// softmax(logits / temperature) (the Gumbel-max trick).
Value draw(Builder& b, Value logits, Value temperature, Value seed) {
  const Shape shape = b.shape(logits);
  const Value u = rng_uniform(b, DType::kF32, shape, 1e-10, 1, 0, seed);  // log(0) would be NaN
  const Value noise = neg(b, log(b, neg(b, log(b, u))));
  rlx::TopKAttrs largest;
  largest.k = 1;
  const Value index = top_k(b, add(b, logits, mul(b, noise, temperature)), largest)[1];
  return reshape(b, index, {});
}

std::string cache_name(std::string_view what, int64_t layer) {
  return "cache" + std::to_string(layer) + "." + std::string(what);
}

}  // namespace

std::vector<std::string> weight_names(const Config& config) {
  std::vector<std::string> names;
  for (const WeightSpec& w : weight_specs(config)) names.push_back(w.name);
  return names;
}

int64_t parameter_count(const Config& config) {
  int64_t count = 0;
  for (const WeightSpec& w : weight_specs(config)) count += w.shape.num_elements().value();
  return count;
}

Graph forward_graph(const Config& config, int64_t batch, int64_t length) {
  Graph graph("forward");
  Builder b(graph);
  const Value tokens = input(b, "tokens", DType::kI64, {batch, length});
  graph.add_output("logits", decode_text(b, config, tokens, frozen_weights(b, config)));
  return graph;
}

Graph evaluation_graph(const Config& config, int64_t batch, int64_t length) {
  Graph graph("evaluation");
  Builder b(graph);
  const Value text = input(b, "text", DType::kI64, {batch, length + 1});
  graph.add_output("loss", mean_loss(b, config, text, frozen_weights(b, config)));
  return graph;
}

Graph training_graph(const Config& config, int64_t batch, int64_t length) {
  const Shape text_shape = {batch, length + 1};
  Graph loss("loss");
  {
    Builder b(loss);
    const Value text = input(b, "text", DType::kI64, text_shape);
    const Weights weights = make_weights(config, [&](const std::string& name, const Shape& shape) {
      return input(b, name, DType::kF32, shape);
    });
    loss.add_output("loss", mean_loss(b, config, text, weights));
  }
  // grad() turns the loss into a graph with outputs loss, d_embedding, ...
  const Graph gradients = rlx::grad(loss, "loss", weight_names(config));

  Graph graph("training_step");
  Builder b(graph);
  const Value text = input(b, "text", DType::kI64, text_shape);
  const Value rate = input(b, "rate", DType::kF32, {});
  const Weights weights = make_weights(config, [&](const std::string& name, const Shape& shape) {
    return param(b, name, DType::kF32, shape, /*is_mutable=*/true);
  });
  std::vector<Value> arguments;
  for (const Value leaf : gradients.inputs()) {
    const std::string& name = gradients.name_of(leaf);
    arguments.push_back(name == "text" ? text : weights.at(name));
  }
  const std::vector<Value> results = inline_graph(b, gradients, arguments);
  graph.add_output("loss", results[0]);

  const Value step = add(b, param(b, "step", DType::kF32, {}, /*is_mutable=*/true), 1);
  graph.add_update("step", step);
  const auto correction = [&](double beta) {
    return sub(b, scalar(b, DType::kF32, 1), pow(b, scalar(b, DType::kF32, beta), step));
  };
  const std::array<Value, 2> corrections = {correction(kBeta1), correction(kBeta2)};
  const std::vector<WeightSpec> specs = weight_specs(config);
  for (size_t i = 0; i < specs.size(); ++i) {
    add_updates(b, specs[i], weights.at(specs[i].name), results[1 + i], rate, corrections);
  }
  return graph;
}

Arrays initial_state(const rlx::Device& device, const Config& config, uint64_t seed) {
  Graph graph("initial_weights");
  Builder b(graph);
  const Value seed_input = input(b, "seed", DType::kU64, {});
  Arrays state = {{"step", rlx::Array::scalar(0.0f)}};
  int64_t key = 0;  // another one for each weight, so that their draws are independent
  for (const auto& [name, shape, deviation] : weight_specs(config)) {
    state[mean_of(name)] = rlx::Array::zeros(DType::kF32, shape.static_dims());
    state[square_of(name)] = rlx::Array::zeros(DType::kF32, shape.static_dims());
    if (deviation == 0) {
      state[name] = rlx::Array::full(DType::kF32, shape.static_dims(), 1);
    } else {
      graph.add_output(name, rng_normal(b, DType::kF32, shape, 0, deviation, key++, seed_input));
    }
  }
  const std::vector<rlx::Array> draws =
      rlx::eval(device, graph, std::vector{rlx::Array::scalar(seed)});
  for (size_t i = 0; i < draws.size(); ++i) state[graph.outputs()[i].name] = draws[i];
  return state;
}

Graph decoding_graph(const Config& config) {
  Graph graph("decoding_step");
  Builder b(graph);
  const Value token = input(b, "token", DType::kI64, {});
  const Value pos = input(b, "pos", DType::kI64, {});
  const Value temperature = input(b, "temperature", DType::kF32, {});
  const Value seed = input(b, "seed", DType::kU64, {});
  const Shape cache_shape = {1, config.context, config.heads, config.width / config.heads};

  const auto append = [&](const std::string& name, Value row) {
    const Value old = param(b, name, DType::kF32, cache_shape, /*is_mutable=*/true);
    const Value cache = kv_append(b, old, row, pos);
    graph.add_update(name, cache);
    return cache;
  };
  // The query stands at the end of what is there: no mask is needed.
  const Value length = add(b, pos, 1);
  const auto attend = [&](int64_t layer, Value q, Value k, Value v) {
    rlx::AttentionExtras extras;
    extras.kv_len = length;
    return attention(b, q, append(cache_name("keys", layer), k),
                     append(cache_name("values", layer), v), {}, extras);
  };
  Value logits =
      decode(b, config, reshape(b, token, {1, 1}), frozen_weights(b, config), attend, pos);
  logits = reshape(b, logits, {config.vocabulary});
  b.set_label("draw");
  graph.add_output("next", draw(b, logits, temperature, rng_fold(b, seed, pos)));
  graph.add_output("logits", logits);
  return graph;
}

Arrays empty_caches(const Config& config) {
  Arrays caches;
  for (int64_t i = 0; i < config.layers; ++i) {
    for (const char* what : {"keys", "values"}) {
      caches[cache_name(what, i)] = rlx::Array::zeros(
          DType::kF32, {1, config.context, config.heads, config.width / config.heads});
    }
  }
  return caches;
}

}  // namespace charlm
