// A decoder of two layers whose keys and values stay with the session: one plan for every length.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "examples/charlm/model.h"
#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/error.h"
#include "rlx/base/philox.h"
#include "rlx/runtime/session.h"
#include "tests/unit/allocation_counter.h"
#include "tests/unit/timing.h"

namespace rlx {
namespace {

constexpr int64_t kCapacity = 4096;

charlm::Config tiny() {
  return {
      .vocabulary = 32, .layers = 2, .width = 16, .heads = 2, .hidden = 16, .context = kCapacity};
}

std::vector<int64_t> random_tokens(int64_t count, int64_t vocabulary) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(philox_block(3, 0, uint64_t(i)).word[0] % vocabulary);
  }
  return tokens;
}

charlm::Arrays random_weights(const charlm::Config& config) {
  const charlm::Arrays state = charlm::initial_state(cpu_device(), config, 7);
  charlm::Arrays weights;
  for (const std::string& name : charlm::weight_names(config)) weights[name] = state.at(name);
  return weights;
}

// The step with random weights, in a session of its own. Caches start with `fill` in all places.
class Decoder {
 public:
  explicit Decoder(const charlm::Config& config, float fill = 0, int threads = 1)
      : pool_(threads - 1), session_(cpu_device(), options(threads)), config_(config) {
    session_.weights().set(random_weights(config));
    for (const auto& [name, zeros] : charlm::empty_caches(config)) {
      session_.weights().set(name, Array::full(DType::kF32, zeros.shape(), fill));
    }
    step_ = std::make_unique<Executable>(session_.compile(charlm::decoding_graph(config)));
  }

  // Returns the drawn token; logits() holds the step's.
  int64_t step(int64_t token, int64_t pos) {
    inputs_[0].mutable_data<int64_t>()[0] = token;
    inputs_[1].mutable_data<int64_t>()[0] = pos;
    step_->run_into(inputs_, outputs_);
    return outputs_[0].data<int64_t>()[0];
  }
  void set_temperature(float t) { inputs_[2].mutable_data<float>()[0] = t; }
  std::span<const float> logits() const { return outputs_[1].data<float>(); }
  const Executable& executable() const { return *step_; }
  WeightStore& weights() { return session_.weights(); }
  int64_t cache_bytes() const { return config_.context * config_.width * int64_t(sizeof(float)); }

 private:
  SessionOptions options(int threads) {
    SessionOptions options;
    options.threads = threads;
    options.executor = &pool_;
    return options;
  }

  ThreadPool pool_;  // of its own: wider than the machine may be
  Session session_;
  const charlm::Config config_;
  std::unique_ptr<Executable> step_;
  std::array<Array, 4> inputs_ = {Array::scalar(int64_t(0)), Array::scalar(int64_t(0)),
                                  Array::scalar(0.0f), Array::scalar(uint64_t(11))};
  std::array<Array, 2> outputs_;
};

// Logits of all positions, computed at once.
Array full_forward(const charlm::Config& config, const std::vector<int64_t>& tokens) {
  const auto length = int64_t(tokens.size());
  Session session(cpu_device());
  session.weights().set(random_weights(config));
  Executable e = session.compile(charlm::forward_graph(config, 1, length));
  return e.run({Array::from<int64_t>(tokens, {1, length})})[0];
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

TEST(Decoder, OnePlanServesAllPositionsAndGivesTheBitsOfTheFullForward) {
  const charlm::Config config = tiny();
  const std::vector<int64_t> tokens = random_tokens(kCapacity, config.vocabulary);
  const Array all = full_forward(config, tokens);
  // What lies beyond the live extent is NaN at every step, and has no effect.
  Decoder decoder(config, std::numeric_limits<float>::quiet_NaN());
  decoder.step(tokens[0], 0);  // takes what outputs and session need
  const int64_t allocations = allocation_count();
  int64_t different = 0, first = -1;
  for (int64_t pos = 0; pos < kCapacity; ++pos) {
    decoder.step(tokens[size_t(pos)], pos);
    const auto row =
        all.data<float>().subspan(size_t(pos * config.vocabulary), size_t(config.vocabulary));
    if (same_bits(row, decoder.logits())) continue;
    if (different++ == 0) first = pos;
  }
  EXPECT_EQ(allocation_count(), allocations);
  EXPECT_EQ(different, 0) << "positions with other bits, the first at " << first;
  EXPECT_EQ(decoder.executable().compiles(), 1);
}

TEST(Decoder, PoisonBeyondTheExtentHasNoEffectAndALiveOneHas) {
  const charlm::Config config = tiny();
  Decoder clean(config), poisoned(config);
  for (int64_t pos = 0; pos < 100; ++pos) {
    clean.step(pos % 32, pos);
    poisoned.step(pos % 32, pos);
  }
  const auto poison = [&](const std::string& name, int64_t from, int64_t to) {
    Array cache = poisoned.weights().get(name);
    const auto data = cache.mutable_data<float>();
    std::fill(data.begin() + from * config.width, data.begin() + to * config.width,
              std::numeric_limits<float>::quiet_NaN());
    poisoned.weights().set(name, cache);
  };
  for (const auto& [name, zeros] : charlm::empty_caches(config)) poison(name, 101, kCapacity);
  clean.step(5, 100);
  poisoned.step(5, 100);
  EXPECT_TRUE(same_bits(clean.logits(), poisoned.logits()));
  poison("cache1.values", 40, 41);
  poisoned.step(5, 100);
  EXPECT_FALSE(same_bits(clean.logits(), poisoned.logits()));
}

TEST(Decoder, CachesAreExtendedInPlaceAndNeverCopied) {
  Decoder decoder(tiny());
  const Report report = decoder.executable().report();
  EXPECT_EQ(report.counts.direct_updates, 4);  // keys and values of two layers
  int64_t appends = 0;
  for (const PlanStep& step : decoder.executable().plan().steps) {
    appends += step.op->name == "KvAppend";
    if (step.op->name != "Copy") continue;
    for (const PlanView& result : step.results) {
      EXPECT_LT(result.desc.num_elements() * 4, decoder.cache_bytes()) << step.label;
    }
  }
  EXPECT_EQ(appends, 4);
  EXPECT_LT(report.memory.arena, decoder.cache_bytes());  // no place for another one
}

TEST(Decoder, PastTheCapacityIsAnErrorAndTheTextGoesOn) {
  charlm::Config config = tiny();
  config.context = 8;
  Decoder decoder(config), other(config);
  for (int64_t pos = 0; pos < 7; ++pos) {
    decoder.step(pos, pos);
    other.step(pos, pos);
  }
  EXPECT_THROW(decoder.step(1, 8), Error);
  EXPECT_THROW(decoder.step(1, -1), Error);
  EXPECT_THROW(decoder.step(config.vocabulary, 7), Error);  // no such token
  decoder.step(1, 7);
  other.step(1, 7);
  EXPECT_TRUE(same_bits(decoder.logits(), other.logits()));
}

// Draws depend on seed and position; the likeliest token comes without temperature.
TEST(Decoder, DrawsFollowTheDistribution) {
  charlm::Config config = tiny();
  config.context = 2048;
  Decoder decoder(config);
  const int64_t greedy = decoder.step(3, 0);
  EXPECT_EQ(greedy, std::max_element(decoder.logits().begin(), decoder.logits().end()) -
                        decoder.logits().begin());
  decoder.set_temperature(1);
  std::vector<double> counts(size_t(config.vocabulary)), expected(counts.size());
  for (int64_t pos = 0; pos < config.context; ++pos) {
    const int64_t token = decoder.step(3, pos);
    EXPECT_EQ(decoder.step(3, pos), token);
    counts[size_t(token)] += 1;
    double sum = 0;
    for (const float x : decoder.logits()) sum += std::exp(double(x));
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += std::exp(decoder.logits()[i]) / sum;
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    // Five standard deviations.
    EXPECT_NEAR(counts[i], expected[i], 5 * std::sqrt(expected[i]) + 1) << "token " << i;
  }
}

TEST(Decoder, TwoThreadsGiveTheSameBits) {
  charlm::Config config = tiny();
  config.width = 256;  // enough to share
  config.heads = 4;
  Decoder one(config, 0, 1), two(config, 0, 2);
  EXPECT_GT(two.executable().report().barriers, 0);
  int64_t a = 0, b = 0;
  for (int64_t pos = 0; pos < 60; ++pos) {
    a = one.step(a, pos);
    b = two.step(b, pos);
    ASSERT_EQ(a, b) << pos;
    ASSERT_TRUE(same_bits(one.logits(), two.logits())) << pos;
  }
}

TEST(Decoder, AStepCostsWhatItsExtentAsksFor) {
  charlm::Config config = tiny();
  config.width = 64;
  config.heads = 4;
  Decoder decoder(config);
  const auto seconds = [&](int64_t pos) { return fastest_of(40, [&] { decoder.step(1, pos); }); };
  const double share = least_of_tries(0.125, [&] { return seconds(63) / seconds(kCapacity - 1); });
  RecordProperty("part_of_full", std::to_string(share));
  EXPECT_LT(share, 0.125);
}

}  // namespace
}  // namespace rlx
