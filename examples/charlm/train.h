// Training: one compiled step, run over random pieces of a text.
#pragma once

#include <cstdint>
#include <span>

#include "examples/charlm/corpus.h"
#include "examples/charlm/saved_model.h"
#include "rlx/runtime/session.h"

namespace charlm {

inline constexpr int64_t kBatch = 8;  // pieces of Config::context characters
inline constexpr int kSteps = 2000;
inline constexpr float kRate = 4e-3f;  // the highest; rises for a while, falls along a cosine
inline constexpr uint64_t kSeed = 1;

// Weights after so many steps on split.train: a function of the arguments, bit for bit, on any
// number of threads (0: all that are free) of one kind of processor. Shows progress. Throws
// rlx::Error(kUser) if the text is too short.
Arrays train(const rlx::Device& device, const Config& config, const Split& split, int steps,
             int threads);

// Mean loss in nats over whole pieces of `tokens`, by weights in the session's store.
double evaluate(rlx::Session& session, const Config& config, std::span<const int64_t> tokens);

}  // namespace charlm
