// Control steps on the CPU: loops and branches through the whole way from graph to run.
#include "rlx/ops/control.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/ops/build.h"
#include "rlx/runtime/session.h"
#include "tests/unit/allocation_counter.h"
#include "tests/unit/test_util.h"
#include "tests/unit/timing.h"

namespace rlx {

RLX_USE_OP(If);
RLX_USE_OP(While);
RLX_USE_OP(Scan);

namespace {

constexpr DType kF32 = DType::kF32, kI64 = DType::kI64, kBool = DType::kBool;
const TensorType kIndex{kI64, {}}, kFlag{kBool, {}};

using BodyFn = std::function<std::vector<Value>(Builder&, const std::vector<Value>&)>;

GraphRef body(const std::vector<TensorType>& inputs, const BodyFn& fn) {
  Graph g("body");
  Builder b(g);
  std::vector<Value> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    values.push_back(input(b, fmt::format("in{}", i), inputs[i].dtype, inputs[i].shape));
  }
  const std::vector<Value> outputs = fn(b, values);
  for (size_t i = 0; i < outputs.size(); ++i) g.add_output(fmt::format("out{}", i), outputs[i]);
  return std::make_shared<const Graph>(std::move(g));
}

template <class S>
std::vector<Value> call(Builder& b, const OpDef& op, S attrs, std::vector<Value> operands) {
  return b.call(op, Attrs::of(op.fields, std::move(attrs)), operands);
}

Array waves(Dims shape, float scale = 1) {
  Array a = Array::uninitialized(kF32, std::move(shape));
  float i = 0;
  for (float& x : a.mutable_data<float>()) x = scale * std::sin(i++);
  return a;
}

// h <- tanh(h w + x_t) with w captured; y_t = h.
Graph recurrent(int64_t length, int64_t rows, int64_t width, bool frozen, bool reverse) {
  Graph g("recurrent");
  Builder b(g);
  const TensorType h_type{kF32, {rows, width}}, w_type{kF32, {width, width}};
  const Value h = input(b, "h", kF32, h_type.shape);
  const Value w = frozen ? param(b, "w", kF32, w_type.shape) : input(b, "w", kF32, w_type.shape);
  const Value x = input(b, "x", kF32, {length, rows, width});
  ScanAttrs attrs{.body = {}, .num_carries = 1, .num_captures = 1, .length = length};
  attrs.reverse = reverse;
  attrs.body = body({kIndex, h_type, w_type, h_type}, [](Builder& in, const auto& v) {
    const Value next = tanh(in, add(in, matmul(in, v[1], v[2]), v[3]));
    return std::vector<Value>{next, next};
  });
  const std::vector<Value> results = call(b, kScanOp, std::move(attrs), {h, w, x});
  g.add_output("h_last", results[0]);
  g.add_output("y", results[1]);
  return g;
}

TEST(Control, ScanEqualsItsUnrolledSteps) {
  for (const bool reverse : {false, true}) {
    const int64_t length = 5, rows = 3, width = 4;
    Session s = session(1);
    const Array h = waves({rows, width}), w = waves({width, width}, 0.5F),
                x = waves({length, rows, width}, 0.3F);
    const auto loop = s.compile(recurrent(length, rows, width, false, reverse)).run({h, w, x});
    Graph g;
    Builder b(g);
    Value state = input(b, "h", kF32, {rows, width});
    const Value wv = input(b, "w", kF32, {width, width});
    const Value xv = input(b, "x", kF32, {length, rows, width});
    std::vector<Value> ys(length);
    for (int64_t i = 0; i < length; ++i) {
      const int64_t t = reverse ? length - 1 - i : i;
      const Value xt = squeeze(b, narrow(b, xv, 0, t, 1), 0);
      state = tanh(b, add(b, matmul(b, state, wv), xt));
      ys[size_t(t)] = unsqueeze(b, state, 0);
    }
    g.add_output("h_last", state);
    g.add_output("y", concat(b, ys, 0));
    const auto unrolled = s.compile(g).run({h, w, x});
    EXPECT_TRUE(loop[0].same_bits(unrolled[0]));
    EXPECT_TRUE(loop[1].same_bits(unrolled[1]));
  }
}

TEST(Control, SameBitsOnAnyNumberOfThreadsAndNoAllocation) {
  const int64_t length = 7, rows = 65, width = 96;
  const Array h = waves({rows, width}), w = waves({width, width}, 0.1F),
              x = waves({length, rows, width});
  std::vector<Array> first;
  for (const bool frozen : {false, true}) {
    for (const int threads : {1, 2, 5}) {
      Session s = session(threads);
      if (frozen) s.weights().set("w", w);
      Executable e = s.compile(recurrent(length, rows, width, frozen, false));
      std::vector<Array> inputs{h, x}, outputs(2);
      if (!frozen) inputs.insert(inputs.begin() + 1, w);
      e.run_into(inputs, outputs);
      if (first.empty()) {
        for (const Array& a : outputs) first.push_back(a.copy());
      }
      EXPECT_TRUE(outputs[0].same_bits(first[0])) << threads << frozen;
      EXPECT_TRUE(outputs[1].same_bits(first[1])) << threads << frozen;
      if (frozen) {
        EXPECT_EQ(e.plan().packed.size(), 1U);
      }
      const int64_t before = allocation_count();
      for (int i = 0; i < 3; ++i) e.run_into(inputs, outputs);
      EXPECT_EQ(allocation_count(), before);
      if (threads > 1) {
        EXPECT_NE(to_string(e.plan()).find("parallel"), std::string::npos);
      }
    }
  }
}

// Counts down from n; the number of trips depends on data.
Graph countdown(std::optional<int64_t> bound) {
  Graph g("countdown");
  Builder b(g);
  const Value n = input(b, "n", kI64, {}), total = input(b, "total", kI64, {});
  WhileAttrs attrs{.condition = {}, .body = {}, .num_carries = 2, .max_iterations = bound};
  attrs.condition = body({kIndex, kIndex}, [](Builder& in, const auto& v) {
    return std::vector<Value>{less(in, scalar(in, kI64, 0), v[0])};
  });
  attrs.body = body({kIndex, kIndex}, [](Builder& in, const auto& v) {
    return std::vector<Value>{sub(in, v[0], 1), add(in, v[1], v[0])};
  });
  const std::vector<Value> r = call(b, kWhileOp, std::move(attrs), {n, total});
  g.add_output("n_last", r[0]);
  g.add_output("sum", r[1]);
  return g;
}

TEST(Control, WhileRunsAsOftenAsTheDataSay) {
  Session s = session(2);
  Executable e = s.compile(countdown({}));
  for (const int64_t n : {0, 1, 10, 1000}) {
    const auto r = e.run({Array::scalar(n), Array::scalar<int64_t>(7)});
    EXPECT_EQ(r[0].at(0), 0);
    EXPECT_EQ(r[1].at(0), 7 + double(n * (n + 1)) / 2);
  }
  EXPECT_EQ(e.compiles(), 1);
  const auto r =
      s.compile(countdown(3)).run({Array::scalar<int64_t>(10), Array::scalar<int64_t>(0)});
  EXPECT_EQ(r[0].at(0), 7);
  EXPECT_EQ(r[1].at(0), 27);
}

TEST(Control, OnlyTheTakenBranchRuns) {
  Graph g;
  Builder b(g);
  const TensorType type{kF32, {4}};
  const Value p = input(b, "p", DType::kBool, {}), x = input(b, "x", kF32, {4}),
              i = input(b, "i", kI64, {1});
  IfAttrs attrs;
  // An index out of range is an error: of the branch that runs only.
  attrs.then_branch = body({type, {kI64, {1}}}, [](Builder& in, const auto& v) {
    return std::vector<Value>{expand(in, gather(in, v[0], v[1]), {4})};
  });
  attrs.else_branch =
      body({type, {kI64, {1}}}, [](Builder&, const auto& v) { return std::vector<Value>{v[0]}; });
  g.add_output("y", call(b, kIfOp, std::move(attrs), {p, x, i})[0]);
  Session s = session(2);
  Executable e = s.compile(g);
  const Array numbers = Array::from<float>({1, 2, 3, 4}, {4});
  const auto run = [&](bool taken, int64_t index) {
    return e.run({Array::scalar(taken), numbers, Array::from<int64_t>({index}, {1})})[0];
  };
  EXPECT_TRUE(run(false, 99).same_bits(numbers));
  EXPECT_EQ(run(true, 2).at(3), 3);
  const std::string text = error_of([&] { run(true, 99); });
  EXPECT_NE(text.find("If: Gather"), std::string::npos) << text;
}

// Carries the state through nested loops: 3 times 4 times x <- x * 0.5 + 1, skipped when t is odd.
TEST(Control, LoopsNest) {
  Graph g;
  Builder b(g);
  const TensorType type{kF32, {2}};
  const Value x = input(b, "x", kF32, {2});
  const GraphRef step = body({type}, [](Builder& in, const auto& v) {
    return std::vector<Value>{add(in, mul(in, v[0], 0.5), 1)};
  });
  const GraphRef stay = body({type}, [](Builder&, const auto& v) { return std::vector{v[0]}; });
  const GraphRef inner = body({kIndex, type}, [&](Builder& in, const auto& v) {
    const Value half = mul(in, div(in, v[0], 2), 2);
    return call(in, kIfOp, IfAttrs{step, stay}, {equal(in, half, v[0]), v[1]});
  });
  const GraphRef outer = body({kIndex, type}, [&](Builder& in, const auto& v) {
    auto r = call(in, kScanOp, ScanAttrs{.body = inner, .num_carries = 1, .length = 4}, {v[1]});
    r.push_back(r[0]);
    return r;
  });
  const auto r = call(b, kScanOp, ScanAttrs{.body = outer, .num_carries = 1, .length = 3}, {x});
  g.add_output("x_last", r[0]);
  g.add_output("trace", r[1]);
  for (const int threads : {1, 2}) {
    CompileOptions options;
    options.guard_zones = threads == 2;
    const auto y = session(threads).compile(g, options).run({Array::from<float>({0, 10}, {2})});
    float a = 0, c = 10;
    for (int t = 0; t < 3; ++t) {
      for (int k = 0; k < 2; ++k) {
        a = a * 0.5F + 1;
        c = c * 0.5F + 1;
      }
      EXPECT_EQ(y[1].at(2 * t), a);
      EXPECT_EQ(y[1].at(2 * t + 1), c);
    }
    EXPECT_EQ(y[0].at(0), a);
  }
}

TEST(Control, ZeroTripsPassCarriesThrough) {
  Session s = session(1);
  const auto r = s.compile(recurrent(0, 2, 3, false, false))
                     .run({waves({2, 3}), waves({3, 3}), waves({0, 2, 3})});
  EXPECT_TRUE(r[0].same_bits(waves({2, 3})));
  EXPECT_EQ(r[1].shape(), (Dims{0, 2, 3}));
}

// Carries that change places: each takes the old value of the other.
TEST(Control, SwappedCarriesReadOldValues) {
  Graph g;
  Builder b(g);
  const TensorType type{kF32, {3}};
  const Value x = input(b, "x", kF32, {3}), y = input(b, "y", kF32, {3});
  const GraphRef swap = body({kIndex, type, type}, [](Builder& in, const auto& v) {
    return std::vector<Value>{v[2], v[1], add(in, v[1], v[2])};
  });
  const auto r = call(b, kScanOp, ScanAttrs{.body = swap, .num_carries = 2, .length = 5}, {x, y});
  for (size_t i = 0; i < 3; ++i) g.add_output(fmt::format("r{}", i), r[i]);
  const Array p = Array::from<float>({1, 2, 3}, {3}), q = Array::from<float>({4, 5, 6}, {3});
  const auto out = session(2).compile(g).run({p, q});
  EXPECT_TRUE(out[0].same_bits(q));
  EXPECT_TRUE(out[1].same_bits(p));
  EXPECT_EQ(out[2].at(14), 9);
}

// A param that a loop carries is updated in its own memory.
TEST(Control, ALoopUpdatesAParamInPlace) {
  Graph g;
  Builder b(g);
  const TensorType type{kF32, {1 << 16}};
  const Value w = param(b, "w", kF32, type.shape, true);
  const GraphRef step = body({kIndex, type}, [](Builder& in, const auto& v) {
    return std::vector<Value>{add(in, v[1], 1)};
  });
  const auto r = call(b, kScanOp, ScanAttrs{.body = step, .num_carries = 1, .length = 10}, {w});
  g.add_update("w", r[0]);
  Session s = session(2);
  s.weights().set("w", Array::zeros(kF32, {1 << 16}));
  Executable e = s.compile(g);
  e.run();
  e.run();
  EXPECT_EQ(s.weights().get("w").at(777), 20);
  EXPECT_EQ(e.plan().counts.copies, 0) << to_string(e.plan());
  EXPECT_EQ(e.plan().counts.direct_updates, 1);
  EXPECT_LT(e.plan().arena_bytes, 1000);
}

Graph endless(int64_t size) {
  Graph g("endless");
  Builder b(g);
  const TensorType type{kF32, {size}};
  const Value x = input(b, "x", kF32, {size});
  WhileAttrs attrs;
  attrs.condition = body({type}, [](Builder& in, const auto&) {
    return std::vector<Value>{constant(in, Array::scalar(true))};
  });
  attrs.body =
      body({type}, [](Builder& in, const auto& v) { return std::vector<Value>{tanh(in, v[0])}; });
  g.add_output("y", call(b, kWhileOp, std::move(attrs), {x})[0]);
  return g;
}

double seconds_to_cancel(Executable& e, int64_t size) {
  using Clock = std::chrono::steady_clock;
  CancelToken cancel;
  RunOptions options;
  options.cancel = &cancel;
  Clock::time_point asked;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    asked = Clock::now();
    cancel.cancel();
  });
  const std::string text =
      error_of([&] { e.run({waves({size})}, options); }, ErrorKind::kCancelled);
  const Clock::time_point returned = Clock::now();
  other.join();
  EXPECT_NE(text.find("cancelled"), std::string::npos) << text;
  return std::chrono::duration<double>(returned - asked).count();
}

TEST(Control, AnEndlessWhileCanBeCancelled) {
  for (const int64_t size : {1, 1 << 18}) {
    for (const int threads : {1, 2, 5}) {
      Session s = session(threads);
      Executable e = s.compile(endless(size));
      const double limit = 0.1 * kSlowdown;
      EXPECT_LT(least_of_tries(limit, [&] { return seconds_to_cancel(e, size); }), limit);
    }
  }
}

// Its carry is the param's memory, so the loop belongs to the steps that are not cancelled; but
// nothing else would end it.
TEST(Control, AnEndlessWhileThatUpdatesAParamCanBeCancelled) {
  for (const int64_t size : {1, 1 << 18}) {
    for (const int threads : {1, 2, 5}) {
      Graph g;
      Builder b(g);
      const TensorType type{kF32, {size}};
      const Value p = param(b, "p", kF32, type.shape, true), more = input(b, "more", kBool, {});
      WhileAttrs attrs;
      attrs.condition =
          body({type, kFlag}, [](Builder&, const auto& v) { return std::vector<Value>{v[1]}; });
      attrs.body = body({type, kFlag}, [](Builder& in, const auto& v) {
        return std::vector<Value>{tanh(in, v[0])};
      });
      g.add_update("p", call(b, kWhileOp, std::move(attrs), {p, more})[0]);
      Session s = session(threads);
      s.weights().set("p", waves({size}));
      Executable e = s.compile(g);
      Array yes = Array::zeros(kBool, {});
      yes.mutable_data<bool>()[0] = true;
      // On a busy machine a run may begin late: then it is asked to stop before it wrote anything.
      std::string text;
      for (int delay = 20; text.find("may hold new values") == std::string::npos; delay *= 2) {
        ASSERT_LT(delay, 10000) << text;
        CancelToken cancel;
        RunOptions options;
        options.cancel = &cancel;
        std::thread other([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(delay));
          cancel.cancel();
        });
        text = error_of([&] { e.run({yes}, options); }, ErrorKind::kCancelled);
        other.join();
      }
      EXPECT_NE(text.find("cancelled"), std::string::npos) << text;
      // No round, nothing to cancel: the param keeps what it has.
      const Array before = s.weights().get("p").copy();
      e.run({Array::zeros(kBool, {})});
      EXPECT_TRUE(s.weights().get("p").same_bits(before));
    }
  }
}

// The last trip reads beyond the table, in one of many chunks.
TEST(Control, AnErrorInABodyLeavesTheLoopOnAllThreads) {
  const int64_t rows = 1 << 14, length = 9;
  Graph g;
  Builder b(g);
  const TensorType table{kF32, {8, 16}}, rows_type{kI64, {rows}}, sum_type{kF32, {rows, 16}};
  const Value t = input(b, "t", kF32, table.shape), i = input(b, "i", kI64, {rows});
  const Value start = input(b, "start", kF32, sum_type.shape);
  ScanAttrs attrs{.body = {}, .num_carries = 1, .num_captures = 2, .length = length};
  attrs.body = body({kIndex, sum_type, table, rows_type}, [&](Builder& in, const auto& v) {
    const Value index = add(in, v[3], expand(in, reshape(in, v[0], {1}), {rows}));
    return std::vector<Value>{add(in, v[1], gather(in, v[2], index))};
  });
  g.add_output("y", call(b, kScanOp, std::move(attrs), {start, t, i})[0]);
  for (const int threads : {1, 2, 5}) {
    Session s = session(threads);
    Executable e = s.compile(g);
    Array index = Array::zeros(kI64, {rows});
    const Array zeros = Array::zeros(kF32, {rows, 16}), data = waves({8, 16});
    const auto begin = std::chrono::steady_clock::now();
    const std::string text = error_of([&] { e.run({data, index, zeros}); });
    EXPECT_NE(text.find("Gather"), std::string::npos) << text;
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 5);
    // The executable is usable afterwards.
    for (int64_t& x : index.mutable_data<int64_t>()) x = -8;
    EXPECT_NO_THROW(e.run({data, index, zeros}));
  }
}

}  // namespace
}  // namespace rlx
