#include "examples/digits/train.h"

#include <array>
#include <cmath>
#include <numbers>
#include <span>

#include "examples/digits/model.h"
#include "examples/digits/timer.h"
#include "rlx/base/philox.h"

namespace digits {
namespace {

rlx::Executable compile_step(rlx::Session& session, double& seconds) {
  const Timer timer;
  rlx::Executable step = session.compile(training_graph(kBatch));
  seconds = timer.seconds();
  return step;
}

}  // namespace

Trainer::Trainer(rlx::Session& session)
    : session_(session), step_(compile_step(session, compile_seconds_)) {}

void Trainer::fit(const Dataset& data, uint64_t seed, Progress& progress) {
  session_.weights().set(initial_state(session_.device(), seed));
  const int steps = steps_per_epoch(data);
  std::vector<int64_t> order(size_t(data.size()));
  // The arrays of all steps: filled again and again, so that a step takes no memory.
  Dataset batch = make_batch(kBatch);
  rlx::Array rate = rlx::Array::scalar(kRate);
  const std::array<rlx::Array, 3> inputs = {batch.images, batch.labels, rate};
  std::array<rlx::Array, 1> outputs = {rlx::Array::scalar(0.0f)};  // the loss

  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    shuffle(rlx::rng_fold(seed, uint64_t(epoch)), order);
    double loss = 0;
    for (int i = 0; i < steps; ++i) {
      copy_examples(data, std::span(order).subspan(size_t(i) * kBatch, kBatch), batch);
      const double progressed = double(epoch * steps + i) / (kEpochs * steps);
      rate.mutable_data<float>()[0] =
          kRate * float(0.5 + 0.5 * std::cos(std::numbers::pi * progressed));

      const Timer timer;
      step_.run_into(inputs, outputs);
      step_seconds_.push_back(timer.seconds());

      loss += outputs[0].data<float>()[0];
      progress.step(epoch, i);
    }
    progress.end_epoch(epoch, loss / steps);
  }
  progress.clear();
}

double Trainer::median_step_seconds() const { return median(step_seconds_); }

}  // namespace digits
