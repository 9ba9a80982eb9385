#include "examples/digits/predict.h"

#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "examples/digits/saved_model.h"
#include "examples/digits/show.h"
#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/error.h"
#include "rlx/io/npy.h"

namespace digits {
namespace {

std::string images_path(const std::string& folder) { return folder + "/examples.images.npy"; }
std::string labels_path(const std::string& folder) { return folder + "/examples.labels.npy"; }
std::string logits_path(const std::string& folder) { return folder + "/examples.logits.npy"; }

// A few examples, among them up to two that the model gets wrong: those teach most.
std::vector<int64_t> choose_examples(const Dataset& data, const std::vector<int64_t>& predicted) {
  constexpr size_t kShown = 4, kWrong = 2;
  const auto labels = data.labels.data<int64_t>();
  std::vector<int64_t> order(predicted.size());
  shuffle(/*seed=*/0, order);
  std::vector<int64_t> right, wrong;
  for (const int64_t i : order) {
    (predicted[size_t(i)] == labels[size_t(i)] ? right : wrong).push_back(i);
  }
  wrong.resize(std::min(wrong.size(), kWrong));
  right.resize(std::min(right.size(), kShown - wrong.size()));
  right.insert(right.end(), wrong.begin(), wrong.end());
  return right;
}

}  // namespace

void save_examples(const Dataset& data, const std::string& folder) {
  rlx::save_npy(images_path(folder), data.images);
  rlx::save_npy(labels_path(folder), data.labels);
}

void predict(const std::string& folder) {
  const SavedModel model = load_model(folder);
  const Dataset data{rlx::load_npy(images_path(folder)), rlx::load_npy(labels_path(folder))};

  rlx::Session session(rlx::cpu_device());
  session.weights().set(model.weights);
  const rlx::Array logits = session.compile(model.graph).run({data.images})[0];

  rlx::save_npy(logits_path(folder), logits);
  const std::vector<int64_t> predicted = predictions(logits);
  show_examples(data, predicted, choose_examples(data, predicted));
}

rlx::Array predict_in_new_process(const std::string& program, const std::string& folder) {
  std::string name = program, command = "predict", argument = folder;
  const std::array<char*, 4> arguments = {name.data(), command.data(), argument.data(), nullptr};
  std::fflush(stdout);  // what we printed stands before what the child prints
  pid_t child = 0;
  const int error = posix_spawnp(&child, name.c_str(), nullptr, nullptr, arguments.data(), environ);
  if (error != 0) {
    rlx::fail(rlx::ErrorKind::kDevice, "can't start {}: {}", program, std::strerror(error));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) {
      rlx::fail(rlx::ErrorKind::kDevice, "can't wait for {}: {}", program, std::strerror(errno));
    }
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    rlx::fail(rlx::ErrorKind::kDevice, "{} predict {} failed", program, folder);
  }
  return rlx::load_npy(logits_path(folder));
}

}  // namespace digits
