// Writes text, character by character, with a small transformer that keeps its keys and values.
//
//   example-charlm [--weights FOLDER] [--text FILE] [--prompt TEXT] [--seed N] [--temperature T]
//   example-charlm --train FILE --out FOLDER [--steps N] [--threads N]   makes the weights
//
// Exit code 0 and a last line "demo: ok" (or "training: ok") say that all went as it should.
#include <fmt/core.h>

#include <charconv>
#include <chrono>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "examples/charlm/corpus.h"
#include "examples/charlm/model.h"
#include "examples/charlm/saved_model.h"
#include "examples/charlm/train.h"
#include "examples/charlm/writer.h"
#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/error.h"
#include "rlx/runtime/session.h"

namespace charlm {
namespace {

constexpr int64_t kCharacters = 200;

struct CommandLine {
  std::string weights = "examples/charlm/weights";
  std::string text = "examples/charlm/data/pride_and_prejudice.txt.gz";
  std::string prompt = "Elizabeth ";
  uint64_t seed = 1;
  float temperature = 0.6f;
  std::string train, out;
  int steps = kSteps, threads = 0;
};

template <class T>
void parse_number(std::string_view option, std::string_view text, T& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end && number >= 0) return;
  rlx::user_error("{} is followed by {}, expected a number that is not negative", option, text);
}

CommandLine parse(const std::vector<std::string>& arguments) {
  using Target = std::variant<std::string*, uint64_t*, float*, int*>;
  CommandLine c;
  const std::map<std::string_view, Target> targets = {
      {"--weights", &c.weights}, {"--text", &c.text},   {"--prompt", &c.prompt},
      {"--seed", &c.seed},       {"--train", &c.train}, {"--temperature", &c.temperature},
      {"--out", &c.out},         {"--steps", &c.steps}, {"--threads", &c.threads},
  };
  for (size_t i = 0; i < arguments.size(); i += 2) {
    const auto found = targets.find(arguments[i]);
    if (found == targets.end() || i + 1 == arguments.size()) {
      rlx::user_error(
          "usage: example-charlm [--weights FOLDER] [--text FILE] [--prompt TEXT] [--seed N] "
          "[--temperature T] | --train FILE --out FOLDER [--steps N] [--threads N]");
    }
    const std::string& value = arguments[i + 1];
    const auto take = [&](auto* target) {
      if constexpr (std::is_same_v<decltype(target), std::string*>) {
        *target = value;
      } else {
        parse_number(arguments[i], value, *target);
      }
    };
    std::visit(take, found->second);
  }
  if (c.train.empty() != c.out.empty()) rlx::user_error("--train and --out go together");
  return c;
}

// The loss of the weights on held-out text beside that of counts; false if it is not clearly less.
bool report_loss(const SavedModel& model, const std::vector<int64_t>& tokens) {
  const Config config = model.config();
  const Split split = split_tail(tokens);
  rlx::Session session(rlx::cpu_device());
  session.weights().set(model.weights);
  const double loss = evaluate(session, config, split.held_out);
  const double bigram = bigram_loss(split, config.vocabulary);
  fmt::print(
      "held-out text: {:.3f} nats per character (counts of single characters {:.3f}, of "
      "pairs {:.3f})\n",
      loss, unigram_loss(split, config.vocabulary), bigram);
  return loss < bigram - 0.5;
}

bool run_training(const CommandLine& c) {
  SavedModel model;
  const std::string text = read_text(c.train);
  model.alphabet = alphabet_of(text);
  const std::vector<int64_t> tokens = encode(text, model.alphabet);
  const auto start = std::chrono::steady_clock::now();
  model.weights = train(rlx::cpu_device(), model.config(), split_tail(tokens), c.steps, c.threads);
  fmt::print("trained {} parameters for {:.0f} s\n", parameter_count(model.config()),
             std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  const bool good = report_loss(model, tokens);
  save_model(model, c.out);
  fmt::print("saved to {}\n", c.out);
  return good;
}

// The text that a session of so many threads writes. False if more was compiled than one plan, or
// if that plan copies a cache.
bool write_text(const SavedModel& model, const CommandLine& c, int threads, Written& written) {
  rlx::ThreadPool pool(threads - 1);  // of its own: the machine may have fewer processors
  rlx::SessionOptions options;
  options.threads = threads;
  options.executor = &pool;
  rlx::Session session(rlx::cpu_device(), options);
  Writer writer(session, model);
  written = writer.write(c.prompt, kCharacters, c.temperature, c.seed);

  const rlx::Report report = writer.step().report();
  const int64_t caches = 2 * model.config().layers;
  fmt::print(
      "{} thread{}: {:.0f} characters per second; compiled {} time, {} steps in the plan, "
      "{} of {} caches extended in place\n",
      threads, threads > 1 ? "s" : "", double(kCharacters - 1) / written.seconds,
      writer.step().compiles(), report.rows.size(), report.counts.direct_updates, caches);
  return writer.step().compiles() == 1 && report.counts.direct_updates == caches;
}

bool run_demo(const CommandLine& c) {
  const SavedModel model = load_model(c.weights);
  const Config config = model.config();
  fmt::print(
      "decoder: {} layers of width {}, {} parameters, {} characters, caches for {} "
      "positions\n",
      config.layers, config.width, parameter_count(config), config.vocabulary, config.context);
  bool good = report_loss(model, encode(read_text(c.text), model.alphabet));
  if (!good) fmt::print("the model predicts no better than counts do\n");

  Written one, two;
  good &= write_text(model, c, 1, one);
  good &= write_text(model, c, 2, two);
  fmt::print("\n{}[{}]\n\n", c.prompt, one.text);
  if (one.text == two.text && one.logits == two.logits) {
    fmt::print("{} characters; on 2 threads the same text and the same {} logits\n",
               one.text.size(), one.logits.size());
  } else {
    fmt::print("on 2 threads text or logits differ\n");
    good = false;
  }
  return good;
}

}  // namespace
}  // namespace charlm

int main(int count, char** arguments) {
  std::string_view what = "demo";
  try {
    const charlm::CommandLine c = charlm::parse({arguments + 1, arguments + count});
    if (!c.train.empty()) what = "training";
    const bool good = c.train.empty() ? charlm::run_demo(c) : charlm::run_training(c);
    fmt::print("{}: {}\n", what, good ? "ok" : "FAILED");
    return good ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print("{}\n{}: FAILED\n", error.what(), what);
    return 1;
  }
}
