// A whole training step of the digits example: derivative, resident state, kernels and threads.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "examples/digits/model.h"
#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/philox.h"
#include "rlx/runtime/session.h"
#include "tests/unit/allocation_counter.h"

namespace rlx {
namespace {

constexpr int64_t kBatch = 20;

// Noise, with a bright pixel whose place is the label: easy to learn.
Array make_images(int64_t count) {
  Array images = Array::uninitialized(DType::kF32, {count, 1, digits::kSide, digits::kSide});
  const auto pixels = images.mutable_data<float>();
  for (size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = 0.5f * uniform_f32(philox_block(7, 0, i).word[0]);
  }
  constexpr int64_t kPixels = digits::kSide * digits::kSide;
  for (int64_t i = 0; i < count; ++i) {
    pixels[size_t(i * kPixels + 6 * (i % digits::kClasses))] = 1;
  }
  return images;
}

Array make_labels(int64_t count) {
  Array labels = Array::uninitialized(DType::kI64, {count});
  for (int64_t i = 0; i < count; ++i) {
    labels.mutable_data<int64_t>()[size_t(i)] = i % digits::kClasses;
  }
  return labels;
}

// The step on its data, in a session of its own.
class Training {
 public:
  explicit Training(int threads, float rate = 0.05f)
      : session_(cpu_device(), options(threads)),
        step_(session_.compile(digits::training_graph(kBatch))),
        inputs_{make_images(kBatch), make_labels(kBatch), Array::scalar(rate)},
        outputs_{Array::scalar(0.f)} {
    session_.weights().set(digits::initial_state(cpu_device(), 5));
  }

  // The loss before the update.
  float step() {
    step_.run_into(inputs_, outputs_);
    return outputs_[0].data<float>()[0];
  }

  WeightStore& weights() { return session_.weights(); }
  const Executable& executable() const { return step_; }

 private:
  static SessionOptions options(int threads) {
    static ThreadPool pool(4);  // wider than the machine of the test may be
    SessionOptions options;
    options.threads = threads;
    options.executor = &pool;
    return options;
  }

  Session session_;
  Executable step_;
  std::array<Array, 3> inputs_;
  std::array<Array, 1> outputs_;
};

TEST(Training, LossDecreasesInOneCompiledStep) {
  Training training(2);
  const float first = training.step();
  EXPECT_GT(first, 1.f);  // guessing among ten costs log(10) = 2.3
  float last = first;
  for (int i = 0; i < 60; ++i) last = training.step();
  EXPECT_LT(last, 0.1f * first);
  EXPECT_EQ(training.executable().compiles(), 1);
}

TEST(TrainingThreads, AStepAllocatesNothing) {
  for (const int threads : {1, 2, 5}) {
    Training training(threads);
    for (int i = 0; i < 3; ++i) training.step();  // sets up, and starts the pool's threads
    const int64_t before = allocation_count();
    for (int i = 0; i < 10; ++i) training.step();
    EXPECT_EQ(allocation_count(), before) << threads << " threads";
  }
}

TEST(TrainingThreads, BitsDoNotDependOnTheNumberOfThreads) {
  Training one(1), two(2), five(5);
  for (int i = 0; i < 10; ++i) {
    const float loss = one.step();
    EXPECT_EQ(loss, two.step()) << "step " << i;
    EXPECT_EQ(loss, five.step()) << "step " << i;
  }
  ASSERT_EQ(one.weights().names().size(), 2 * digits::weight_names().size());
  for (const std::string& name : one.weights().names()) {
    EXPECT_TRUE(one.weights().get(name).same_bits(two.weights().get(name))) << name;
    EXPECT_TRUE(one.weights().get(name).same_bits(five.weights().get(name))) << name;
  }
}

TEST(Training, UpdatesAreThoseOfMomentum) {
  constexpr float kRate = 0.125f;
  Training training(2, kRate);
  for (int i = 0; i < 2; ++i) {
    std::map<std::string, Array> before;
    for (const std::string& name : digits::weight_names()) {
      before[name] = training.weights().get(name);
    }
    training.step();
    for (const std::string& name : digits::weight_names()) {
      const Array after = training.weights().get(name);
      const Array momentum = training.weights().get(name + ".momentum");
      bool moved = false;
      for (int64_t j = 0; j < after.num_elements(); ++j) {
        const float old = before[name].data<float>()[size_t(j)];
        const float change = momentum.data<float>()[size_t(j)] * kRate;
        ASSERT_EQ(after.data<float>()[size_t(j)], old - change) << name << " at " << j;
        moved = moved || change != 0;
      }
      EXPECT_TRUE(moved) << name;
    }
  }
}

// Sums are ordered by their length alone, so neighbours in a batch change nothing.
TEST(Training, ABatchGivesTheBitsOfItsExamples) {
  Session session(cpu_device());
  session.weights().set(digits::initial_state(cpu_device(), 5));
  Executable model = session.compile(digits::inference_graph());
  const Array images = make_images(kBatch);
  const Array all = model.run({images})[0];
  const Dims one_image = {1, 1, digits::kSide, digits::kSide};
  for (int64_t i = 0; i < kBatch; ++i) {
    const auto pixels = images.data<float>().subspan(size_t(i) * 64, 64);
    const Array alone = model.run({Array::from(pixels, one_image)})[0];
    const auto row = all.data<float>().subspan(size_t(i * digits::kClasses), digits::kClasses);
    EXPECT_TRUE(alone.same_bits(Array::from(row, {1, digits::kClasses}))) << "image " << i;
  }
  EXPECT_EQ(model.compiles(), 2);
}

}  // namespace
}  // namespace rlx
