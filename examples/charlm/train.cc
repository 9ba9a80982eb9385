#include "examples/charlm/train.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numbers>

#include "examples/charlm/progress.h"
#include "rlx/base/error.h"
#include "rlx/base/philox.h"

namespace charlm {
namespace {

constexpr int kWarmUp = 100;

float rate_of(int step, int steps) {
  const double rising = double(step + 1) / kWarmUp;
  const double falling = 0.5 + 0.5 * std::cos(std::numbers::pi * double(step) / steps);
  return kRate * float(std::min(rising, 1.0) * falling);
}

// Fills text [batch, piece] with pieces of `tokens` at places drawn for this step.
void draw_pieces(std::span<const int64_t> tokens, int step, rlx::Array& text) {
  const auto piece = size_t(text.shape()[1]);
  const uint64_t places = tokens.size() - piece + 1;
  int64_t* to = text.mutable_data<int64_t>().data();
  for (int64_t i = 0; i < text.shape()[0]; ++i, to += piece) {
    const rlx::PhiloxBlock bits = rlx::philox_block(kSeed, uint64_t(step), uint64_t(i));
    const uint64_t place = (bits.word[0] | uint64_t(bits.word[1]) << 32) % places;
    std::copy_n(tokens.data() + place, piece, to);
  }
}

void check_length(std::span<const int64_t> tokens, int64_t needed, const char* what) {
  if (int64_t(tokens.size()) >= needed) return;
  rlx::user_error("the {} part of the text has {} characters, expected at least {}", what,
                  tokens.size(), needed);
}

}  // namespace

Arrays train(const rlx::Device& device, const Config& config, const Split& split, int steps,
             int threads) {
  check_length(split.train, config.context + 1, "training");
  rlx::SessionOptions options;
  options.threads = threads;
  rlx::Session session(device, options);
  session.weights().set(initial_state(device, config, kSeed));
  rlx::Executable step = session.compile(training_graph(config, kBatch, config.context));
  fmt::print("{} steps in the plan of a training step, on {} threads; {}\n",
             step.plan().steps.size(), session.threads(), step.estimate().to_string());

  // The arrays of all steps: filled again and again, so that a step takes no memory.
  rlx::Array text = rlx::Array::zeros(rlx::DType::kI64, {kBatch, config.context + 1});
  rlx::Array rate = rlx::Array::scalar(0.0f);
  const std::array<rlx::Array, 2> inputs = {text, rate};
  std::array<rlx::Array, 1> outputs = {rlx::Array::scalar(0.0f)};  // the loss
  Progress progress(steps);
  for (int i = 0; i < steps; ++i) {
    draw_pieces(split.train, i, text);
    rate.mutable_data<float>()[0] = rate_of(i, steps);
    step.run_into(inputs, outputs);
    progress.show(i + 1, outputs[0].data<float>()[0]);
  }
  progress.clear();

  Arrays weights;
  for (const std::string& name : weight_names(config)) weights[name] = session.weights().get(name);
  return weights;
}

double evaluate(rlx::Session& session, const Config& config, std::span<const int64_t> tokens) {
  const auto piece = size_t(config.context), batch = size_t(kBatch) * piece;
  check_length(tokens, int64_t(batch) + 1, "held-out");
  rlx::Executable model = session.compile(evaluation_graph(config, kBatch, config.context));
  rlx::Array text = rlx::Array::zeros(rlx::DType::kI64, {kBatch, config.context + 1});
  double sum = 0;
  int batches = 0;
  for (size_t at = 0; at + batch < tokens.size(); at += batch, ++batches) {
    for (size_t i = 0; i < size_t(kBatch); ++i) {
      // The last token of a piece is the first of the next.
      std::copy_n(tokens.data() + at + i * piece, piece + 1,
                  text.mutable_data<int64_t>().data() + i * (piece + 1));
    }
    sum += model.run({text})[0].data<float>()[0];
  }
  return sum / batches;
}

}  // namespace charlm
