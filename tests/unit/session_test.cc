// Sessions and executables: calling, errors, cancelling, clones, weights, reports.
#include "rlx/runtime/session.h"

#include <gtest/gtest.h>

#include <thread>

#include "rlx/ops/build.h"
#include "rlx/runtime/eval.h"
#include "tests/unit/allocation_counter.h"
#include "tests/unit/fake_device.h"
#include "tests/unit/test_util.h"

namespace rlx {
namespace {

constexpr DType kF32 = DType::kF32;

// y = x w + b, with everything that a plan can have.
Graph linear() {
  Graph g("linear");
  Builder b(g);
  const Value x = input(b, "x", kF32, {2, 3});
  const Value w = param(b, "w", kF32, {3, 2});
  const Value bias = input(b, "bias", kF32, {2});
  g.add_output("y", add(b, matmul(b, x, w), bias));
  return g;
}

TEST(Session, RunsByPositionAndByName) {
  Session session(fake::device(), threads(2));
  session.weights().set("w", numbers({3, 2}));
  Executable e = session.compile(linear());
  const std::vector<float> expected{32, 39, 59, 75};
  const Array x = numbers({2, 3}), bias = numbers({2}, 10);
  EXPECT_EQ(values(e.run({x, bias})[0]), expected);
  EXPECT_EQ(values(e.run({{"bias", bias}, {"x", x}})[0]), expected);
  EXPECT_EQ(values(e.run(std::map<std::string, Array>{{"bias", bias}, {"x", x}})[0]), expected);
  EXPECT_EQ(e.input_names(), (std::vector<std::string>{"x", "bias"}));
  EXPECT_EQ(e.output_names(), (std::vector<std::string>{"y"}));
  Array y = Array::zeros(kF32, {2, 2});
  const std::vector<Array> inputs{x, bias};
  e.run_into(inputs, {&y, 1});
  EXPECT_EQ(values(y), expected);
  EXPECT_EQ(e.compiles(), 1);
  EXPECT_EQ(e.threads(), 2);
}

TEST(Session, RunsWithoutInputs) {
  Session session(fake::device(), threads(1));
  Graph g;
  Builder b(g);
  g.add_output("y", splat(b, kF32, {2}, 3));
  EXPECT_EQ(values(session.compile(g).run()[0]), (std::vector<float>{3, 3}));
}

TEST(Session, ErrorsNameWhatIsWrong) {
  Session session(fake::device(), threads(1));
  session.weights().set("w", numbers({3, 2}));
  Executable e = session.compile(linear());
  const Array x = numbers({2, 3}), bias = numbers({2});
  EXPECT_EQ(thrown_by([&] { e.run({x}); }).message(),
            "'linear' takes 2 inputs (x, bias), 1 were given");
  EXPECT_EQ(thrown_by([&] {
              e.run({numbers({3, 2}), bias});
            }).message(),
            "input 'x' of 'linear': expected f32[2, 3], got f32[3, 2]");
  EXPECT_EQ(thrown_by([&] {
              e.run({x, Array::zeros(DType::kI32, {2})});
            }).message(),
            "input 'bias' of 'linear': expected f32[2], got i32[2]");
  EXPECT_EQ(thrown_by([&] {
              e.run({x, Array()});
            }).message(),
            "input 'bias' of 'linear': expected f32[2], got an undefined array");
  EXPECT_EQ(thrown_by([&] {
              e.run({{"x", x}});
            }).message(),
            "input 'bias' of 'linear' is missing; the inputs are: x, bias");
  EXPECT_EQ(thrown_by([&] {
              e.run({{"x", x}, {"bias", bias}, {"z", x}});
            }).message(),
            "'linear' has no input 'z'; the inputs are: x, bias");
  EXPECT_EQ(thrown_by([&] {
              e.run({{"x", x}, {"x", x}});
            }).message(),
            "input 'x' of 'linear' is given twice");
  const std::vector<Array> inputs{x, bias};
  Array wrong = numbers({4});
  EXPECT_EQ(thrown_by([&] {
              e.run_into(inputs, {&wrong, 1});
            }).message(),
            "output 'y' of 'linear': expected an array of type f32[2, 2], got f32[4]");
  EXPECT_EQ(thrown_by([&] { e.run_into(inputs, {}); }).message(),
            "'linear' has 1 outputs, 0 arrays were given for them");
  session.weights().set("w", numbers({2, 2}));
  EXPECT_EQ(thrown_by([&] {
              e.run({x, bias});
            }).message(),
            "the param 'w' is f32[3, 2] in the graph, its value in the weight store is f32[2, 2]");
  session.weights().erase("w");
  EXPECT_EQ(thrown_by([&] {
              e.run({x, bias});
            }).message(),
            "the param 'w' of type f32[3, 2] has no value: set it in the session's weight store");
  session.weights().set("w", numbers({3, 2}));
  EXPECT_EQ(values(e.run({x, bias})[0]), (std::vector<float>{23, 30, 50, 66}));
  EXPECT_EQ(thrown_by([&] { session.weights().get("v"); }).message(),
            "the weight store has no weight 'v'");
}

TEST(Session, StepErrorsNameTheOpAndItsLabel) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {64});
  b.set_label("loss");
  g.add_output("y", neg(b, activation(b, ActivationKind::kLog, x)));
  for (const int n : {1, 2, 5}) {
    Session session(fake::device(), threads(n));
    Executable e = session.compile(g);
    const Error error = thrown_by([&] { e.run({numbers({64}, -62)}); });
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_EQ(error.message().rfind("Activation at loss: the logarithm of -", 0), 0u)
        << error.message();
    EXPECT_EQ(e.run({Array::full(kF32, {64}, 1)})[0].at(63), 0);  // usable afterwards
  }
}

TEST(Session, AFailedRunLeavesParamsAsTheyWere) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {64});
  const Value w = param(b, "w", kF32, {64}, true);
  g.add_update("w", add(b, w, x));  // first in the graph, last in the plan
  g.add_output("y", activation(b, ActivationKind::kLog, x));
  for (const int n : {1, 2, 5}) {
    Session session(fake::device(), threads(n));
    session.weights().set("w", numbers({64}));
    Executable e = session.compile(g);
    EXPECT_EQ(e.plan().counts.direct_updates, 1);
    thrown_by([&] { e.run({numbers({64}, -62)}); });
    EXPECT_TRUE(session.weights().get("w").same_bits(numbers({64})));
    e.run({Array::full(kF32, {64}, 1)});
    EXPECT_TRUE(session.weights().get("w").same_bits(numbers({64}, 2)));
  }
}

TEST(Session, AnErrorAfterTheFirstWriteSaysSo) {
  Graph g;
  Builder b(g);
  const Value w = param(b, "w", kF32, {4}, true);
  const Value next = add(b, w, input(b, "x", kF32, {4}));
  g.add_update("w", next);
  g.add_output("y", activation(b, ActivationKind::kLog, neg(b, next)));
  Session session(fake::device(), threads(1));
  session.weights().set("w", numbers({4}));
  Executable e = session.compile(g);
  ASSERT_EQ(e.plan().counts.direct_updates, 1);
  const Error error = thrown_by([&] { e.run({numbers({4})}); });
  EXPECT_NE(error.message().find("may hold new values"), std::string::npos) << error.message();
}

TEST(Session, CancelStopsBetweenChunksAndBeforeParamsAreWritten) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {2000});  // two seconds of work
  const Value w = param(b, "w", kF32, {2000}, true);
  const Value y = activation(b, ActivationKind::kSqrt, x);
  g.add_output("y", y);
  g.add_update("w", add(b, w, y));
  for (const int n : {1, 2, 5}) {
    Session session(fake::device(), threads(n));
    session.weights().set("w", numbers({2000}));
    Executable e = session.compile(g);
    CancelToken cancel;
    RunOptions options;
    options.cancel = &cancel;
    fake::slow_chunks = 0;
    std::thread other([&] {
      while (fake::slow_chunks < 5) std::this_thread::yield();
      cancel.cancel();
    });
    EXPECT_EQ(thrown_by([&] { e.run({numbers({2000})}, options); }).kind(), ErrorKind::kCancelled);
    other.join();
    EXPECT_LT(fake::slow_chunks, 1500);
    EXPECT_TRUE(session.weights().get("w").same_bits(numbers({2000})));
    fake::slow_chunks = 0;
    EXPECT_EQ(thrown_by([&] { e.run({numbers({2000})}, options); }).kind(), ErrorKind::kCancelled);
    EXPECT_EQ(fake::slow_chunks, 0);  // not begun
  }
}

// A graph that takes long: a chunk of Sqrt a millisecond.
Graph slow(int64_t chunks) {
  Graph g("slow");
  Builder b(g);
  g.add_output("y", activation(b, ActivationKind::kSqrt, input(b, "x", kF32, {chunks})));
  return g;
}

TEST(Session, ASecondRunAtTheSameTimeIsRefused) {
  Session session(fake::device(), threads(1));
  Executable e = session.compile(slow(100));
  fake::slow_chunks = 0;
  std::thread other([&] { e.run({numbers({100})}); });
  while (fake::slow_chunks < 2) std::this_thread::yield();
  const Error error = thrown_by([&] { e.run({numbers({100})}); });
  EXPECT_NE(error.message().find("'slow' is running already"), std::string::npos);
  other.join();
  e.run({numbers({100})});
}

TEST(Session, ClonesAndSessionsRunAtTheSameTime) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {40, 40});
  const Value w = param(b, "w", kF32, {40, 40});
  Value y = x;
  for (int i = 0; i < 3; ++i) {
    y = mul(b, matmul(b, y, w), 1.0 / 1024);
    y = activation(b, ActivationKind::kExp, neg(b, activation(b, ActivationKind::kAbs, y)));
  }
  g.add_output("y", y);
  Session one(fake::device(), threads(1));
  one.weights().set("w", numbers({40, 40}));
  std::vector<Array> expected;
  expected.reserve(4);
  Executable first = one.compile(g);
  for (int i = 0; i < 4; ++i) {
    expected.push_back(first.run({Array::full(kF32, {40, 40}, i + 1)})[0]);
  }
  Session two(fake::device(), threads(3));
  two.weights().set("w", numbers({40, 40}));
  Executable original = two.compile(g);
  std::vector<std::thread> callers;
  callers.reserve(4);
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&, i, e = i < 2 ? original.clone() : first.clone()]() mutable {
      for (int k = 0; k < 20; ++k) {
        wrong += !e.run({Array::full(kF32, {40, 40}, i + 1)})[0].same_bits(expected[size_t(i)]);
      }
    });
  }
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(original.compiles(), 1);
  EXPECT_EQ(two.weights().packs(), 1);  // shared by the clones
}

TEST(Session, RunsThatUpdateHaveTheWeightsForThemselves) {
  Graph train, infer;
  {
    Builder b(train);
    const Value p = param(b, "p", kF32, {4096}, true);
    train.add_update("p", add(b, p, 1));
    Builder c(infer);
    const Value q = param(c, "p", kF32, {4096});
    infer.add_output("lowest", add(c, q, 0.5));
  }
  Session session(fake::device(), threads(1));
  session.weights().set("p", Array::zeros(kF32, {4096}));
  Executable writer = session.compile(train), reader = session.compile(infer);
  std::thread other([&] {
    for (int i = 0; i < 200; ++i) writer.run();
  });
  for (int i = 0; i < 200; ++i) {
    const Array seen = reader.run()[0];
    const auto data = seen.data<float>();
    for (const float x : data) ASSERT_EQ(x, data[0]);  // no half-written state
  }
  other.join();
  EXPECT_EQ(reader.run()[0].at(0), 200.5);
}

TEST(Session, WritingIntoGivenOutputsAllocatesNothing) {
  for (const int n : {1, 3}) {
    Session session(fake::device(), threads(n));
    Graph g;
    Builder b(g);
    const Value x = input(b, "x", kF32, {Dim::symbol("n"), 40});
    const Value w = param(b, "w", kF32, {40, 40});
    const Value count = param(b, "count", kF32, {}, true);
    g.add_output("y", neg(b, activation(b, ActivationKind::kAbs, matmul(b, x, w))));
    g.add_update("count", add(b, count, 1));
    session.weights().set("w", numbers({40, 40}));
    session.weights().set("count", numbers({}, 0));
    Executable e = session.compile(g);
    const std::vector<Array> inputs{numbers({40, 40})};
    std::vector<Array> outputs{Array::zeros(kF32, {40, 40})};
    // The first run sets up; the pool's threads start up to then.
    for (int i = 0; i < 3; ++i) e.run_into(inputs, outputs);
    const int64_t before = allocation_count();
    for (int i = 0; i < 100; ++i) e.run_into(inputs, outputs);
    EXPECT_EQ(allocation_count(), before) << n << " threads";
    EXPECT_EQ(session.weights().get("count").at(0), 103);
  }
}

TEST(Session, StridedArraysAreStagedAndCounted) {
  Session session(fake::device(), threads(1));
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {2, 3});
  g.add_output("y", add(b, x, x));
  Executable e = session.compile(g);
  float memory[] = {1, 2, 3, 4, 5, 6};
  const Array columns = Array::borrow(kF32, memory, {2, 3}, {1, 2});
  EXPECT_EQ(values(e.run({columns})[0]), (std::vector<float>{2, 6, 10, 4, 8, 12}));
  const Array backwards = Array::borrow(kF32, memory + 5, {2, 3}, {-3, -1});
  EXPECT_EQ(values(e.run({backwards})[0]), (std::vector<float>{12, 10, 8, 6, 4, 2}));
  float result[12] = {};
  std::vector<Array> out{Array::borrow(kF32, result, {2, 3}, {6, 2})};
  const std::vector<Array> in{numbers({2, 3})};
  e.run_into(in, out);
  EXPECT_EQ(std::vector<float>(result, result + 12),
            (std::vector<float>{2, 0, 4, 0, 6, 0, 8, 0, 10, 0, 12, 0}));
  // An output in the input's memory.
  std::vector<Array> both{numbers({2, 3})};
  const std::vector<Array> same{both[0]};
  e.run_into(same, both);
  EXPECT_EQ(values(both[0]), (std::vector<float>{2, 4, 6, 8, 10, 12}));
  // Memory that is not aligned to its elements.
  alignas(4) char bytes[4 * 6 + 1] = {};
  std::memcpy(bytes + 1, memory, sizeof(memory));
  EXPECT_EQ(values(e.run({Array::borrow(kF32, bytes + 1, {2, 3})})[0]),
            (std::vector<float>{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(e.report().staged_inputs, 3);
  EXPECT_EQ(e.report().staged_outputs, 2);
  const Array read_only = Array::borrow(kF32, memory, {2, 3}, {}, nullptr, false);
  std::vector<Array> no{read_only};
  EXPECT_THROW(e.run_into(in, no), Error);
}

TEST(Session, OutputsThatShareMemoryAreRefused) {
  Session session(fake::device(), threads(1));
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {4});
  g.add_output("y", add(b, x, x));
  g.add_output("z", mul(b, x, x));
  Executable e = session.compile(g);
  const Array same = numbers({4});
  std::vector<Array> outputs{same, same};
  const std::vector<Array> inputs{numbers({4})};
  EXPECT_NE(thrown_by([&] { e.run_into(inputs, outputs); }).message().find("given the same memory"),
            std::string::npos);
}

TEST(Weights, PackedOnceAndAgainWhenReplaced) {
  Session session(fake::device(), threads(1));
  session.weights().set("w", numbers({3, 2}));
  Executable e = session.compile(linear());
  const Array x = numbers({2, 3}), bias = Array::zeros(kF32, {2});
  EXPECT_EQ(e.estimate().packed_weights, 24);
  e.run({x, bias});
  e.run({x, bias});
  e.clone().run({x, bias});
  EXPECT_EQ(session.weights().packs(), 1);
  EXPECT_EQ(session.weights().packed_bytes(), 24);
  session.weights().set("w", numbers({3, 2}, 2));
  EXPECT_EQ(session.weights().packed_bytes(), 0);
  EXPECT_EQ(values(e.run({x, bias})[0]), (std::vector<float>{28, 34, 64, 79}));
  EXPECT_EQ(session.weights().packs(), 2);
}

TEST(Weights, UnknownWhenCompilingMeansNotPacked) {
  Session session(fake::device(), threads(1));
  Executable e = session.compile(linear());
  session.weights().set("w", numbers({3, 2}));
  EXPECT_EQ(values(e.run({numbers({2, 3}), Array::zeros(kF32, {2})})[0]),
            (std::vector<float>{22, 28, 49, 64}));
  EXPECT_EQ(session.weights().packs(), 0);
}

TEST(Weights, ThePurposeDecidesWhatIsPacked) {
  const auto graph = [](bool updates) {
    Graph g("products");
    Builder b(g);
    const Value x = input(b, "x", kF32, {40, 96});
    const Value w = param(b, "w", kF32, {96, 64}, true), v = param(b, "v", kF32, {96, 64}, true);
    g.add_output("y", matmul(b, x, w));
    g.add_output("z", matmul(b, x, v));
    if (updates) g.add_update("w", add(b, w, scalar(b, kF32, 1.0)));
    return g;
  };
  const auto packs = [&](const Graph& g, Purpose purpose) {
    Session s = session(1);
    s.weights().set("w", numbers({96, 64}));
    s.weights().set("v", numbers({96, 64}, 2));
    CompileOptions options;
    options.purpose = purpose;
    s.compile(g, options).run({numbers({40, 96})});
    return s.weights().packs();
  };
  EXPECT_EQ(packs(graph(false), Purpose::kAuto), 2);
  EXPECT_EQ(packs(graph(false), Purpose::kInference), 2);
  EXPECT_EQ(packs(graph(false), Purpose::kTraining), 0);
  EXPECT_EQ(packs(graph(true), Purpose::kAuto), 0);
  EXPECT_EQ(packs(graph(true), Purpose::kInference), 1);  // v, which the run leaves alone
  EXPECT_EQ(packs(graph(true), Purpose::kTraining), 0);

  // Packed forms of a mutable param follow what other runs make of it.
  Session s = session(2);
  s.weights().set("w", numbers({96, 64}));
  s.weights().set("v", numbers({96, 64}, 2));
  Executable train = s.compile(graph(true)), infer = s.compile(graph(false));
  CompileOptions plain;
  plain.purpose = Purpose::kTraining;
  Executable unpacked = s.compile(graph(false), plain);
  const Array x = numbers({40, 96});
  for (int i = 0; i < 3; ++i) {
    const auto got = infer.run({x}), wanted = unpacked.run({x});
    EXPECT_TRUE(got[0].same_bits(wanted[0]));
    EXPECT_TRUE(got[1].same_bits(wanted[1]));
    train.run({x});
  }
  EXPECT_EQ(s.weights().packs(), 4);  // v once
}

TEST(Weights, PackedFormsFollowTraining) {
  Session session(fake::device(), threads(1));
  session.weights().set("w", numbers({3, 2}));
  Executable infer = session.compile(linear());
  Graph g;
  Builder b(g);
  const Value w = param(b, "w", kF32, {3, 2}, true);
  g.add_update("w", add(b, w, 1));
  Executable train = session.compile(g);
  const Array x = numbers({2, 3}), bias = Array::zeros(kF32, {2});
  EXPECT_EQ(values(infer.run({x, bias})[0]), (std::vector<float>{22, 28, 49, 64}));
  train.run();
  EXPECT_EQ(values(infer.run({x, bias})[0]), (std::vector<float>{28, 34, 64, 79}));
}

TEST(Weights, TheCallersArrayIsNotOverwritten) {
  Session session(fake::device(), threads(1));
  const Array mine = numbers({4});
  session.weights().set("w", mine);
  Graph g;
  Builder b(g);
  g.add_update("w", add(b, param(b, "w", kF32, {4}, true), 1));
  Executable e = session.compile(g);
  e.run();
  e.run();
  EXPECT_TRUE(mine.same_bits(numbers({4})));
  EXPECT_TRUE(session.weights().get("w").same_bits(numbers({4}, 3)));
  EXPECT_EQ(session.weights().names(), (std::vector<std::string>{"w"}));
  EXPECT_EQ(session.weights().bytes(), 16);
}

TEST(Limits, ExecutablesOutliveTheirSession) {
  std::unique_ptr<Executable> e;
  {
    Session session(fake::device(), threads(2));
    session.weights().set("w", numbers({3, 2}));
    e = std::make_unique<Executable>(session.compile(linear()));
  }
  EXPECT_EQ(values(e->run({numbers({2, 3}), Array::zeros(kF32, {2})})[0]),
            (std::vector<float>{22, 28, 49, 64}));
}

TEST(Report, CountsWorkAndMemory) {
  Session session(fake::device(), threads(2));
  session.weights().set("w", numbers({3, 2}));
  Executable e = session.compile(linear());
  const Report report = e.report();
  ASSERT_EQ(report.rows.size(), 2u);
  EXPECT_EQ(report.rows[0].op, "MatMul");
  EXPECT_EQ(report.rows[0].entry, "matmul");
  EXPECT_EQ(report.rows[0].flops, 2 * 2 * 2 * 3);
  EXPECT_EQ(report.rows[1].bytes, 4 * (4 + 2 + 4));
  EXPECT_EQ(report.memory.weights, 24);
  EXPECT_EQ(report.memory.arena, 64);
  EXPECT_NE(report.to_string().find("MatMul"), std::string::npos);
}

TEST(Eval, OneCallAndOneGraph) {
  const Attrs attrs = Attrs::of(kBinaryOp.fields, BinaryAttrs{BinaryKind::kMul});
  const Array x = numbers({3});
  EXPECT_EQ(values(eval(fake::device(), kBinaryOp, attrs, {x, x})[0]),
            (std::vector<float>{1, 4, 9}));
  EXPECT_THROW(eval(fake::device(), kBinaryOp, attrs, {x, Array()}), Error);
  EXPECT_THROW(eval(fake::device(), linear(), {}), Error);
}

TEST(Fold, ConstantsAreEvaluatedByTheDevicesOwnKernels) {
  Graph g;
  Builder b(g);
  const Value c = constant(b, numbers({4, 2}));
  const Value folded = matmul(b, transpose(b, c, {1, 0}), c);
  g.add_output("y", add(b, input(b, "x", kF32, {2, 2}), folded));
  Session session(fake::device(), threads(1));
  Executable e = session.compile(g);
  EXPECT_EQ(e.plan().steps.size(), 1u) << to_string(e.plan());
  EXPECT_EQ(values(e.run({Array::zeros(kF32, {2, 2})})[0]),
            (std::vector<float>{84, 100, 100, 120}));
}

TEST(Runner, DispatchCostsLittle) {
  Graph g;
  Builder b(g);
  Value v = input(b, "x", kF32, {1});
  for (int i = 0; i < 1000; ++i) v = neg(b, v);
  g.add_output("y", v);
  CompileOptions options;
  options.optimize = false;
  Session session(fake::device(), threads(1));
  Executable e = session.compile(g, options);
  const std::vector<Array> inputs{numbers({1})};
  std::vector<Array> outputs{numbers({1})};
  double best = 1e9;
  for (int i = 0; i < 20; ++i) {
    const auto start = std::chrono::steady_clock::now();
    e.run_into(inputs, outputs);
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count() / 1000);
  }
  RecordProperty("ns_per_step", std::to_string(best));
  EXPECT_LT(best, 2000) << "a step of one element";  // typically below 100; sanitizers are slower
  EXPECT_EQ(values(outputs[0]), std::vector<float>{1});
}

}  // namespace
}  // namespace rlx
