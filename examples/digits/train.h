// Training: one compiled step, run over shuffled batches.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/digits/dataset.h"
#include "examples/digits/progress.h"
#include "rlx/runtime/session.h"

namespace digits {

inline constexpr int64_t kBatch = 32;
inline constexpr int kEpochs = 12;
inline constexpr float kRate = 0.05f;  // of the first step; it falls to 0 along a cosine

class Trainer {
 public:
  // Compiles the step. The session must outlive the trainer.
  explicit Trainer(rlx::Session& session);

  // Trains from the start that the seed gives. The weights are then in the session's store.
  void fit(const Dataset& data, uint64_t seed, Progress& progress);
  // Steps of an epoch over `data`; the examples that do not fill a batch wait for another epoch.
  static int steps_per_epoch(const Dataset& data) { return int(data.size() / kBatch); }

  const rlx::Executable& step() const { return step_; }
  double compile_seconds() const { return compile_seconds_; }
  double median_step_seconds() const;

 private:
  rlx::Session& session_;
  double compile_seconds_ = 0;  // before step_, whose initializer sets it
  rlx::Executable step_;
  std::vector<double> step_seconds_;  // of every step so far
};

}  // namespace digits
