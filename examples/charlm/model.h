// A small transformer decoder, as graphs: what it computes, how it learns, how it writes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rlx/base/array.h"
#include "rlx/ir/graph.h"
#include "rlx/runtime/device.h"

namespace charlm {

struct Config {
  int64_t vocabulary = 68;
  int64_t layers = 2;
  int64_t width = 64;
  int64_t heads = 4;      // divides width; width / heads is even
  int64_t hidden = 128;   // inner width of the two-layer network behind attention
  int64_t context = 256;  // positions: the length of training texts, the capacity of the caches
};

// Arrays by name: weights, the state of the optimizer, caches.
using Arrays = std::map<std::string, rlx::Array>;

std::vector<std::string> weight_names(const Config& config);
int64_t parameter_count(const Config& config);

// Input tokens i64[batch, length], output logits f32[batch, length, vocabulary]: row i says what
// may follow the tokens 0 to i. The weights are frozen params.
rlx::Graph forward_graph(const Config& config, int64_t batch, int64_t length);

// Mean loss of predicting each token from those before it. Input text i64[batch, length + 1],
// output loss f32[] in nats; the weights are frozen params.
rlx::Graph evaluation_graph(const Config& config, int64_t batch, int64_t length);

// One step of AdamW (Loshchilov and Hutter, 2019). Inputs text i64[batch, length + 1] and the
// learning rate f32[]; output loss f32[] before the step. Weights, moments and the count of steps
// are mutable params: they stay in the session's store, and a run updates them where they are.
rlx::Graph training_graph(const Config& config, int64_t batch, int64_t length);

// Weights drawn by the seed, moments of zero: the params of training_graph before the first step.
Arrays initial_state(const rlx::Device& device, const Config& config, uint64_t seed);

// One token of one text. Inputs token i64[], pos i64[], temperature f32[], seed u64[]; outputs
//   next    i64[]           the next token, drawn from softmax(logits / temperature); the likeliest
//                           at temperature 0; it depends on seed and pos alone
//   logits  f32[vocabulary]
// The keys and values of all positions so far are mutable params, which the run extends where they
// are: one plan serves every position below config.context.
rlx::Graph decoding_graph(const Config& config);

// Zeros for the caches of decoding_graph. What they hold from pos on has no influence.
Arrays empty_caches(const Config& config);

}  // namespace charlm
