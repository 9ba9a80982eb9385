// A small convolutional network, as graphs: what it computes, how it learns, how it starts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rlx/base/array.h"
#include "rlx/ir/graph.h"
#include "rlx/runtime/device.h"

namespace digits {

inline constexpr int64_t kSide = 8;  // images are kSide x kSide
inline constexpr int64_t kClasses = 10;

// The learned arrays by name: what a weight store and a saved model hold.
using Weights = std::map<std::string, rlx::Array>;

int64_t parameter_count();
std::vector<std::string> weight_names();

// Input images f32[n, 1, 8, 8], output logits f32[n, 10], for any n. The weights are frozen params.
rlx::Graph inference_graph();

// One step of stochastic gradient descent with momentum. Inputs images f32[batch, 1, 8, 8], labels
// i64[batch] and the learning rate f32[]; output loss f32[]. Weights and momenta are mutable
// params: they stay in the session's store, and a run updates them where they are.
rlx::Graph training_graph(int64_t batch);

// Weights drawn by the seed (and momenta of zero): the params of training_graph before the first
// step.
Weights initial_state(const rlx::Device& device, uint64_t seed);

}  // namespace digits
