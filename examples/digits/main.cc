// Learns to read handwritten digits, from the pixels to a saved model that another process loads.
//
//   example-digits [--data FOLDER] [--save FOLDER]
//   example-digits predict FOLDER                    runs a model that --save left there
//
// Exit code 0 and a last line "demo: ok" say that all went as it should.
#include <fmt/core.h>

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "examples/digits/dataset.h"
#include "examples/digits/model.h"
#include "examples/digits/predict.h"
#include "examples/digits/progress.h"
#include "examples/digits/saved_model.h"
#include "examples/digits/show.h"
#include "examples/digits/timer.h"
#include "examples/digits/train.h"
#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/error.h"
#include "rlx/runtime/session.h"

namespace digits {
namespace {

constexpr uint64_t kSeeds[] = {1, 2, 3};
constexpr double kGoal = 0.97;  // held-out accuracy

struct CommandLine {
  std::string data = "examples/digits/data";
  std::string save;  // empty: a temporary folder
};

CommandLine parse(const std::vector<std::string>& arguments) {
  CommandLine options;
  for (size_t i = 0; i < arguments.size(); i += 2) {
    std::string* option = arguments[i] == "--data"   ? &options.data
                          : arguments[i] == "--save" ? &options.save
                                                     : nullptr;
    if (option == nullptr || i + 1 == arguments.size()) {
      rlx::user_error("usage: example-digits [--data FOLDER] [--save FOLDER] | predict FOLDER");
    }
    *option = arguments[i + 1];
  }
  return options;
}

// Median seconds of a run on the first `count` examples.
double time_inference(rlx::Executable& model, const Dataset& data, int64_t count) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(i);
  Dataset batch = make_batch(count);
  copy_examples(data, rows, batch);
  const std::vector<rlx::Array> inputs = {batch.images};
  std::vector<rlx::Array> outputs = model.run(inputs);  // compiles for this size
  std::vector<double> seconds;
  for (int run = 0; run < 50; ++run) {
    const Timer timer;
    model.run_into(inputs, outputs);
    seconds.push_back(timer.seconds());
  }
  return median(std::move(seconds));
}

void print_header(const rlx::Session& session, const Dataset& data, const Trainer& trainer) {
  const rlx::Executable& step = trainer.step();
  fmt::print("device {}, {} threads; {} digits of {} x {} pixels\n", session.device().name(),
             session.threads(), data.size(), kSide, kSide);
  fmt::print("model: {} parameters; training step of {} examples: {} steps in its plan\n",
             parameter_count(), kBatch, step.plan().steps.size());
  fmt::print("memory of a step: {}\n\n", step.estimate().to_string());
}

// What is left to check after training: model, examples, and the logits it gave for them here.
struct Trained {
  SavedModel model;
  Dataset held_out;
  rlx::Array logits;
};

// Trains once for each seed; false if one stays below the goal. The last model is kept.
bool train_all(rlx::Session& session, Trainer& trainer, const Dataset& data, Trained& last) {
  bool good = true;
  last.model.graph = inference_graph();
  rlx::Executable model = session.compile(last.model.graph);
  for (const uint64_t seed : kSeeds) {
    const Timer timer;
    Split split = split_by_class(data, seed);
    const std::string title = fmt::format("seed {}", seed);
    Progress progress(title, kEpochs, Trainer::steps_per_epoch(split.train));
    trainer.fit(split.train, seed, progress);

    // The store holds the trained weights; the other executable of the session reads them there.
    last.logits = model.run({split.held_out.images})[0];
    const int64_t right = count_right(predictions(last.logits), split.held_out);
    const double accuracy = double(right) / double(split.held_out.size());
    fmt::print("{}: {} of {} held-out digits right ({:.2f} %), trained in {:.1f} s\n", title, right,
               split.held_out.size(), 100 * accuracy, timer.seconds());
    if (accuracy < kGoal) {
      fmt::print("{}: less than {:.0f} %\n", title, 100 * kGoal);
      good = false;
    }
    last.held_out = std::move(split.held_out);
  }
  for (const std::string& name : weight_names()) {
    last.model.weights[name] = session.weights().get(name);
  }

  const double image = time_inference(model, last.held_out, 1);
  const double batch = time_inference(model, last.held_out, kBatch);
  fmt::print("\ncompiling the step {:.1f} ms, {} time for all seeds\n",
             1e3 * trainer.compile_seconds(), trainer.step().compiles());
  fmt::print("medians: training step {:.2f} ms; inference of 1 image {:.1f} us, of {} {:.1f} us\n",
             1e3 * trainer.median_step_seconds(), 1e6 * image, kBatch, 1e6 * batch);
  return good;
}

bool run_demo(const std::string& program, const CommandLine& options) {
  const Dataset data = load_digits(options.data);
  rlx::Session session(rlx::cpu_device());
  Trainer trainer(session);
  print_header(session, data, trainer);
  Trained trained;
  bool good = train_all(session, trainer, data, trained);
  if (trainer.step().compiles() != 1) {
    fmt::print("the step was compiled {} times\n", trainer.step().compiles());
    good = false;
  }

  std::optional<TemporaryFolder> temporary;
  if (options.save.empty()) temporary.emplace();
  const std::string folder = temporary ? temporary->path() : options.save;
  save_model(trained.model, folder);
  save_examples(trained.held_out, folder);
  fmt::print("\nsaved to {}; loaded by a new process:\n\n", folder);
  const rlx::Array reloaded = predict_in_new_process(program, folder);
  if (reloaded.same_bits(trained.logits)) {
    fmt::print("\nits logits of all {} held-out digits have the same bits as ours\n",
               trained.held_out.size());
  } else {
    fmt::print("\nits logits differ from ours\n");
    good = false;
  }
  return good;
}

int run(const std::string& program, const std::vector<std::string>& arguments) {
  if (arguments.size() == 2 && arguments[0] == "predict") {
    predict(arguments[1]);
    return 0;
  }
  const bool good = run_demo(program, parse(arguments));
  fmt::print("demo: {}\n", good ? "ok" : "FAILED");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace digits

int main(int count, char** arguments) {
  try {
    return digits::run(arguments[0], {arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    fmt::print("{}\ndemo: FAILED\n", error.what());
    return 1;
  }
}
