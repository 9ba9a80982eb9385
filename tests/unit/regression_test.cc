// Calls that once failed, and their kin.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <new>
#include <string_view>
#include <vector>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/compile/pipeline.h"
#include "rlx/ops/build.h"
#include "rlx/ops/pool.h"
#include "rlx/runtime/eval.h"
#include "rlx/runtime/plan_cache.h"
#include "rlx/runtime/program.h"
#include "rlx/runtime/session.h"
#include "tests/unit/fake_device.h"
#include "tests/unit/test_util.h"

namespace rlx {
namespace {

constexpr DType kF32 = DType::kF32;
constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

SessionOptions one_thread() {
  SessionOptions options;
  options.threads = 1;
  return options;
}

CompileOptions as_built() {
  CompileOptions options;
  options.optimize = false;
  return options;
}

// `values` one byte off the alignment of its elements.
Array misaligned(const Array& values) {
  auto memory = std::make_shared<std::vector<std::byte>>(size_t(values.byte_size()) + 8);
  auto* first = memory->data();
  while (reinterpret_cast<uintptr_t>(first) % 4 != 1) ++first;
  Array a = Array::borrow(values.dtype(), first, values.shape(), {}, memory);
  a.copy_from(values);
  return a;
}

bool is_aligned_to(const Array& a, size_t bytes) {
  return reinterpret_cast<uintptr_t>(a.raw()) % bytes == 0;
}

// The phases of a line are as many as its stride.
TEST(Regression, StrideOfASingleWindowCostsNothing) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {1, 1, 4});
  g.add_output("pool", pool(b, x, {.kernel_size = {2}, .stride = {kHuge}}));
  const std::vector<Array> y =
      eval(cpu_device(), g, std::vector{Array::from<float>({1, 2, 3, 4}, {1, 1, 4})});
  EXPECT_EQ(y[0].shape(), (Dims{1, 1, 1}));
  EXPECT_EQ(y[0].at(0), 2);
}

// Every param must be read before any of them is written.
TEST(Regression, ParamsRotateThroughTransposedViews) {
  Graph g;
  Builder b(g);
  const Value u = param(b, "u", kF32, {2, 2}, true), v = param(b, "v", kF32, {2, 2}, true);
  g.add_output("u", u);
  g.add_update("u", transpose(b, v, {1, 0}));
  g.add_update("v", transpose(b, u, {1, 0}));
  Session session(cpu_device());
  session.weights().set("u", Array::from<float>({1, 2, 3, 4}, {2, 2}));
  session.weights().set("v", Array::from<float>({5, 6, 7, 8}, {2, 2}));
  Executable e = session.compile(g);
  const std::vector<Array> y = e.run();
  EXPECT_TRUE(y[0].same_bits(Array::from<float>({1, 2, 3, 4}, {2, 2})));
  EXPECT_TRUE(session.weights().get("u").same_bits(Array::from<float>({5, 7, 6, 8}, {2, 2})));
  EXPECT_TRUE(session.weights().get("v").same_bits(Array::from<float>({1, 3, 2, 4}, {2, 2})));
}

// A view of a constant that became too large to be laid out while compiling is no constant.
TEST(Regression, ViewsOfACopiedConstantAreReadFromTheCopy) {
  Graph g;
  Builder b(g);
  const Value c = constant(b, numbers({1024}));
  const Value rows = reshape(b, expand(b, c, {1024, 1024}), {2048, 512});
  const Value part = narrow(b, transpose(b, rows, {1, 0}), 1, 0, 4);
  g.add_output("y", neg(b, part));  // takes dense operands only
  Session session(fake::device(), one_thread());
  Executable e = session.compile(g, as_built());
  const Array y = e.run()[0];
  ASSERT_EQ(y.shape(), (Dims{512, 4}));
  for (int64_t i = 0; i < 512; ++i) {
    for (int64_t j = 0; j < 4; ++j) {
      ASSERT_EQ(y.at(i * 4 + j), -double(1 + (j % 2) * 512 + i)) << i << ", " << j;
    }
  }
}

TEST(Regression, ACancelledRunForgetsWhatTheOneBeforeHadWritten) {
  Graph train, infer;
  Builder b(train), c(infer);
  train.add_update("w", add(b, param(b, "w", kF32, {4, 4}, true), 1));
  infer.add_output("y", matmul(c, input(c, "x", kF32, {4, 4}), param(c, "w", kF32, {4, 4})));
  Session session(fake::device(), one_thread());
  session.weights().set("w", numbers({4, 4}));
  Executable writer = session.compile(train), reader = session.compile(infer);
  writer.run();
  reader.run({numbers({4, 4})});
  ASSERT_EQ(session.weights().packs(), 1);
  CancelToken cancel;
  cancel.cancel();
  RunOptions options;
  options.cancel = &cancel;
  const Error error = thrown_by([&] { writer.run(std::vector<Array>{}, options); });
  EXPECT_EQ(error.kind(), ErrorKind::kCancelled);
  EXPECT_EQ(error.message(), "the run was cancelled before it started");
  reader.run({numbers({4, 4})});
  EXPECT_EQ(session.weights().packs(), 1);  // the packed form was still good
}

TEST(Regression, MisalignedWeightsAndConstantsAreCopied) {
  const Array odd = misaligned(numbers({4}));
  ASSERT_FALSE(is_aligned_to(odd, 4));
  Graph g;
  Builder b(g);
  const Value w = param(b, "w", kF32, {4}), f = param(b, "frozen", kF32, {4});
  g.add_output("y", add(b, add(b, w, f), constant(b, odd)));
  Session session(cpu_device(), one_thread());
  session.weights().set("w", odd);
  EXPECT_TRUE(is_aligned_to(session.weights().peek("w"), 4));
  EXPECT_TRUE(session.weights().get("w").same_bits(numbers({4})));
  session.weights().set({{"frozen", odd}});
  EXPECT_TRUE(is_aligned_to(session.weights().peek("frozen"), 4));
  const Array even = numbers({4});
  session.weights().set("even", even);
  EXPECT_EQ(session.weights().peek("even").raw(), even.raw());  // kept as it is
  Executable e = session.compile(g, as_built());
  ASSERT_EQ(e.plan().constants.size(), 1u);
  EXPECT_TRUE(is_aligned_to(e.plan().constants[0], 4));
  EXPECT_TRUE(e.run()[0].same_bits(Array::from<float>({3, 6, 9, 12}, {4})));
}

// A size that one input leaves open is told by another.
TEST(Regression, SizesThatCannotBeSolvedWaitForOtherInputs) {
  const Dim n = Dim::symbol("n");
  Graph g("open");
  Builder b(g);
  const Value x = input(b, "x", kF32, {floor_div(n + 1, 2)}), y = input(b, "y", kF32, {n * n});
  const Value z = input(b, "z", kF32, {2 * n + 1});
  g.add_output("x", neg(b, x));
  g.add_output("y", neg(b, y));
  g.add_output("z", neg(b, z));
  EXPECT_EQ(bind_symbols(g, std::vector{numbers({1}), numbers({4}), numbers({5})}).at("n"), 2);
  EXPECT_EQ(bind_symbols(g, std::vector{numbers({2}), numbers({9}), numbers({7})}).at("n"), 3);
  EXPECT_EQ(thrown_by([&] {
              bind_symbols(g, std::vector{numbers({2}), numbers({8}), numbers({7})});
            }).message(),
            "input 'y' of 'open': expected f32[n*n] with n = 3, got f32[8]");
  EXPECT_EQ(thrown_by([&] {
              bind_symbols(g, std::vector{numbers({2}), numbers({9}), numbers({6})});
            }).message(),
            "input 'z' of 'open': expected f32[1 + 2*n], got f32[6]");
  Graph h("alone");
  Builder c(h);
  h.add_output("x", neg(c, input(c, "x", kF32, {floor_div(n, 2)})));
  EXPECT_EQ(thrown_by([&] { bind_symbols(h, std::vector{numbers({2})}); }).message(),
            "the shapes of the inputs of 'alone' do not determine the size 'n'");
}

TEST(Regression, APlanLargerThanTheCacheEvictsNothing) {
  const auto plan = [](int64_t bytes) {
    auto p = std::make_shared<Plan>();
    p->constants.push_back(Array::zeros(DType::kU8, {bytes}));
    return p;
  };
  PlanCache cache(8, 100000);
  const auto small = cache.insert({1, {1}}, plan(1000));
  const auto large = cache.insert({1, {2}}, plan(200000));
  EXPECT_TRUE(large->dropped);
  EXPECT_EQ(large->plan->constants[0].byte_size(), 200000);
  EXPECT_FALSE(small->dropped);
  EXPECT_EQ(cache.find({1, {1}}), small);
  EXPECT_EQ(cache.find({1, {2}}), nullptr);
  EXPECT_EQ(cache.entries(), 1u);
  PlanCache none(0, 100000);
  EXPECT_TRUE(none.insert({1, {1}}, plan(1000))->dropped);
  EXPECT_EQ(none.entries(), 0u);
}

TEST(Regression, CompilingWithoutMemoryIsADeviceError) {
  Graph fixed("fixed"), symbolic("symbolic");
  Builder b(fixed), c(symbolic);
  fixed.add_output("y", neg(b, input(b, "x", kF32, {2})));
  symbolic.add_output("y", neg(c, input(c, "x", kF32, {Dim::symbol("n")})));
  CompileOptions no_memory, too_long;
  no_memory.dump = [](std::string_view, const Graph&) { throw std::bad_alloc(); };
  too_long.dump = [](std::string_view, const Graph&) {
    std::vector<float>().reserve(std::vector<float>().max_size() + 1);
  };
  for (const CompileOptions& options : {no_memory, too_long}) {
    Session session(fake::device(), one_thread());
    const auto expect_device_error = [](const Error& e, std::string_view graph) {
      EXPECT_EQ(e.kind(), ErrorKind::kDevice);
      EXPECT_EQ(e.message(), fmt::format("not enough memory to compile '{}'", graph));
    };
    expect_device_error(thrown_by([&] { compile_plan(fixed, fake::device().kernels(), options); }),
                        "fixed");
    expect_device_error(thrown_by([&] { session.compile(fixed, options); }), "fixed");
    Executable e = session.compile(symbolic, options);
    expect_device_error(thrown_by([&] { e.run({numbers({2})}); }), "symbolic");
  }
}

TEST(Regression, InputsMayLieInAParamThatTheRunUpdates) {
  Graph g("step");
  Builder b(g);
  const Value w = param(b, "w", kF32, {4}, true), x = input(b, "x", kF32, {4});
  const Value next = add(b, w, 10);
  g.add_update("w", next);
  g.add_output("y", mul(b, next, x));  // reads x after w was written
  Session session(fake::device(), one_thread());
  session.weights().set("w", numbers({4}));
  Executable e = session.compile(g);
  ASSERT_EQ(e.plan().counts.direct_updates, 1);
  e.run({numbers({4})});  // from now on the store has memory of its own: 11, 12, 13, 14
  EXPECT_EQ(e.report().staged_inputs, 0);
  const Array y = e.run({session.weights().peek("w")})[0];
  EXPECT_TRUE(y.same_bits(Array::from<float>({21 * 11, 22 * 12, 23 * 13, 24 * 14}, {4})));
  EXPECT_EQ(e.report().staged_inputs, 1);
  EXPECT_TRUE(session.weights().get("w").same_bits(numbers({4}, 21)));

  const std::vector<Array> inputs{numbers({4})};
  std::vector<Array> outputs{session.weights().peek("w")};
  EXPECT_EQ(thrown_by([&] { e.run_into(inputs, outputs); }).message(),
            "output 'y' of 'step' is given the memory of a param");
  EXPECT_TRUE(session.weights().get("w").same_bits(numbers({4}, 21)));
  outputs[0] = Array();
  e.run_into(inputs, outputs);  // the store is not left locked
  EXPECT_TRUE(session.weights().get("w").same_bits(numbers({4}, 31)));
}

// Runs a graph when it is destroyed, and ends the process with code 7 if that went well.
struct RunsAtExit {
  ~RunsAtExit() {
    Graph g;
    Builder b(g);
    g.add_output("y", neg(b, add(b, input(b, "x", kF32, {2}), 1)));
    std::_Exit(eval(cpu_device(), g, std::vector{numbers({2})})[0].at(1) == -3 ? 7 : 1);
  }
};

TEST(RegressionDeathTest, DestructorsOfStaticObjectsMayRunGraphs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process in which no graph ran before
  EXPECT_EXIT(
      {
        static const RunsAtExit at_exit;  // older than the device: destroyed after it
        cpu_device().kernels();
        std::exit(0);
      },
      testing::ExitedWithCode(7), "");
}

// --- Large graphs: compiling them takes about linear time.

TEST(Regression, LongChainsCompile) {
  Graph g;
  Builder b(g);
  Value v = input(b, "x", kF32, {16});
  for (int i = 0; i < 20000; ++i) v = activation(b, ActivationKind::kAbs, v);
  g.add_output("y", v);
  Session session(fake::device(), one_thread());
  Executable e = session.compile(g, as_built());
  EXPECT_EQ(e.plan().steps.size(), 20000u);
  EXPECT_EQ(e.plan().arena_bytes, 128);  // two values in turn
  EXPECT_TRUE(e.run({numbers({16}, -20)})[0].same_bits(
      Array::from<float>({20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5}, {16})));
}

// Forward values that wait for their turn backward, as in training: all are alive together.
TEST(Regression, ManyValuesAliveTogetherCompile) {
  constexpr int64_t kLength = 4000;
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {48});
  std::vector<Value> forward{x};
  for (int64_t i = 1; i <= kLength; ++i) {
    forward.push_back(
        add(b, narrow(b, x, 0, 0, 16 + i % 3 * 16), narrow(b, forward.back(), 0, 0, 1)));
  }
  Value sum = narrow(b, forward[kLength], 0, 0, 16);
  for (int64_t i = kLength - 1; i > 0; --i)
    sum = add(b, sum, narrow(b, forward[size_t(i)], 0, 0, 16));
  g.add_output("y", sum);
  Session session(fake::device(), one_thread());
  Executable e = session.compile(g, as_built());
  EXPECT_GE(e.plan().counts.live_bytes, kLength * 64);
  EXPECT_LE(e.plan().arena_bytes, e.plan().counts.live_bytes * 11 / 10);
  const Array y = e.run({numbers({48})})[0];  // value i is (1, 2, ...) + i
  for (int64_t k = 0; k < 16; ++k) {
    EXPECT_EQ(y.at(k), double(kLength * (k + 1)) + double(kLength * (kLength + 1)) / 2);
  }
}

}  // namespace
}  // namespace rlx
