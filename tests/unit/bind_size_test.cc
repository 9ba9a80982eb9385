// Sizes that a run sets itself: how many rows are kept depends on values.
#include "rlx/ops/bind_size.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "rlx/backend/reference/reference.h"
#include "rlx/ir/serialize.h"
#include "rlx/ir/text.h"
#include "rlx/ops/build.h"
#include "rlx/ops/control.h"
#include "rlx/ops/dim_size.h"
#include "rlx/ops/loops.h"
#include "rlx/ops/sort.h"
#include "rlx/ops/table.h"
#include "rlx/transform/vmap.h"
#include "tests/unit/test_util.h"
#include "tests/unit/timing.h"

namespace rlx {

RLX_USE_OP(BindSize);
RLX_USE_OP(If);
RLX_USE_OP(Scan);

namespace {

constexpr DType kF32 = DType::kF32, kI64 = DType::kI64;
constexpr int64_t kRows = 37;
const Dim kN = Dim::symbol("n");

using Build = std::function<std::vector<Value>(Builder&)>;

Graph graph_of(const Build& build) { return rlx::graph_of("selected", build); }

// The rows of x whose score is above 0, the largest scores first; sets n to their number.
Value kept_rows(Builder& b, Value x, Value scores) {
  const Value zero = scalar(b, kF32, 0.0);
  const Value above = cast(b, less(b, zero, scores), kI64);
  bind_size(b, sum(b, above, {0}), "n", b.shape(x)[0]);
  SortAttrs attrs;
  attrs.descending = true;
  const Value order = narrow(b, sort(b, scores, attrs)[1], 0, 0, kN);
  return gather(b, x, order);
}

// k scores above 0, in a scattered order.
Array scores_with(int64_t k, int64_t rows = kRows) {
  Array a = Array::uninitialized(kF32, {rows});
  float* data = a.mutable_data<float>().data();
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t place = i * 10 % rows;  // 10 is prime to the numbers of rows used here
    data[place] = i < k ? 1 + float(i) : -float(i);
  }
  return a;
}

// What is done with n rows of 8 numbers.
std::vector<Value> head(Builder& b, Value rows, Value w) {
  const Value h = relu(b, matmul(b, rows, w));
  return {h, softmax(b, h), sum(b, h, {1}), add(b, dim_size(b, rows, 0), scalar(b, kI64, 1))};
}

TEST(BindSize, RowsThatAScoreSelects) {
  const Graph g = graph_of([](Builder& b) {
    const Value x = input(b, "x", kF32, {kRows, 8}), scores = input(b, "scores", kF32, {kRows});
    const Value w = input(b, "w", kF32, {8, 16});
    return head(b, kept_rows(b, x, scores), w);
  });
  const Graph plain = graph_of([](Builder& b) {
    const Value rows = input(b, "rows", kF32, {kN, 8});
    return head(b, rows, input(b, "w", kF32, {8, 16}));
  });
  const Array x = numbers({kRows, 8}, -50), w = numbers({8, 16}, -60);
  for (const int threads : {1, 2}) {
    for (const bool guards : {false, true}) {
      Session s = session(threads);
      CompileOptions options;
      options.guard_zones = guards;
      Executable selected = s.compile(g, options), exact = s.compile(plain);
      for (const int64_t k : {37, 36, 17, 16, 5, 2, 1, 0, 37}) {
        SCOPED_TRACE(fmt::format("{} of {} rows", k, kRows));
        const Array scores = scores_with(k);
        Array rows = Array::uninitialized(kF32, {k, 8});
        for (int64_t i = 0; i < k; ++i) {
          const int64_t from = (k - 1 - i) * 10 % kRows;  // the largest score first
          for (int64_t c = 0; c < 8; ++c) {
            rows.mutable_data<float>()[size_t(i * 8 + c)] = float(x.at(from * 8 + c));
          }
        }
        const auto got = selected.run({x, scores, w}), wanted = exact.run({rows, w});
        ASSERT_EQ(got.size(), wanted.size());
        for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].same_bits(wanted[i])) << i;
      }
      EXPECT_EQ(selected.compiles(), 1);
    }
  }
}

// The first `count` rows of x, and what is computed from them.
Graph first_rows(int64_t bound) {
  return graph_of([&](Builder& b) {
    const Value x = input(b, "x", kF32, {bound, 3});
    bind_size(b, input(b, "count", kI64, {}), "n", bound);
    const Value rows = narrow(b, x, 0, 0, kN);
    return std::vector<Value>{rows, sum(b, rows, {0}), mean(b, rows, {0, 1})};
  });
}

TEST(BindSize, AnInputIsTheSize) {
  Session s = session(1);
  Executable e = s.compile(first_rows(6));
  const Array x = numbers({6, 3});
  for (const int64_t n : {6, 0, 1, 4}) {
    const auto y = e.run({x, Array::scalar(n)});
    EXPECT_EQ(y[0].shape(), (Dims{n, 3}));
    for (int64_t i = 0; i < 3 * n; ++i) EXPECT_EQ(y[0].at(i), x.at(i));
    EXPECT_EQ(y[1].at(0), double(n * (3 * n - 1)) / 2);  // 1 + 4 + 7 + ...
    if (n > 0) {
      EXPECT_EQ(y[2].at(0), double(3 * n + 1) / 2);
    } else {
      EXPECT_TRUE(std::isnan(y[2].at(0)));
    }
  }
}

TEST(BindSize, OutputsOfTheCaller) {
  Session s = session(1);
  Executable e = s.compile(first_rows(6));
  const std::vector<Array> in{numbers({6, 3}), Array::scalar(int64_t(4))};
  std::vector<Array> out(3);
  e.run_into(in, out);
  EXPECT_EQ(out[0].shape(), (Dims{4, 3}));
  Array same = Array::zeros(kF32, {4, 3});
  out[0] = same;
  e.run_into(in, out);
  EXPECT_TRUE(same.same_bits(e.run(in)[0]));
  out[0] = Array::zeros(kF32, {5, 3});
  EXPECT_EQ(error_of([&] { e.run_into(in, out); }),
            "output 'y0' of 'selected': expected an array of type f32[4, 3], got f32[5, 3]");
}

// What is wrong at any size is refused before the run; only the size itself has to wait.
TEST(BindSize, WrongOutputsAndParams) {
  Graph g = first_rows(6);
  Builder b(g);
  g.add_update("runs", add(b, param(b, "runs", kF32, {}, true), 1.0));
  Session s = session(1);
  s.weights().set("runs", Array::scalar(0.0F));
  Executable e = s.compile(g);
  const std::vector<Array> in{numbers({6, 3}), Array::scalar(int64_t(4))};
  const auto refusal = [&](Array array) {
    std::vector<Array> out(3);
    out[0] = std::move(array);
    return error_of([&] { e.run_into(in, out); });
  };
  for (const Array& wrong : {Array::zeros(kF32, {7, 3}), Array::zeros(kF32, {4, 2}),
                             Array::zeros(kI64, {4, 3}), Array::zeros(kF32, {4})}) {
    EXPECT_EQ(refusal(wrong),
              fmt::format("output 'y0' of 'selected': expected an array of type f32[n, 3], got {}",
                          wrong.type().to_string()));
  }
  Array memory = Array::zeros(kF32, {4, 3});
  EXPECT_EQ(refusal(Array::borrow(kF32, memory.mutable_raw(), {4, 3}, {}, nullptr, false)),
            "the array of type f32[4, 3] is read-only");
  EXPECT_EQ(s.weights().get("runs").at(0), 0);
  EXPECT_EQ(
      refusal(Array::zeros(kF32, {5, 3})),
      "output 'y0' of 'selected': expected an array of type f32[4, 3], got f32[5, 3] (the run "
      "has written params: they hold new values)");
  EXPECT_EQ(s.weights().get("runs").at(0), 1);
}

TEST(BindSize, SizesBelowZero) {
  const Graph g = graph_of([](Builder& b) {
    const Dim m = Dim::symbol("m");
    bind_size(b, input(b, "n", kI64, {}), "n", 6);
    bind_size(b, input(b, "m", kI64, {}), "m", 6);
    return std::vector<Value>{sum(b, iota(b, kI64, {kN + m - 3}, 0), {0})};
  });
  for (const int threads : {1, 2}) {
    Session s = session(threads);
    Executable e = s.compile(g);
    const auto run = [&](int64_t n, int64_t m) {
      return e.run({Array::scalar(n), Array::scalar(m)})[0].at(0);
    };
    EXPECT_EQ(run(1, 2), 0);
    EXPECT_EQ(run(5, 6), 28);
    EXPECT_EQ(run(0, 6), 3);
    EXPECT_EQ(error_of([&] { run(1, 1); }),
              "BindSize: the size -3 + m + n in 'selected' is -1, with m = 1, n = 1");
    EXPECT_EQ(run(6, 0), 3);
  }
}

// No shape has the size: where a window begins.
TEST(BindSize, APlace) {
  const Graph g = graph_of([](Builder& b) {
    bind_size(b, input(b, "count", kI64, {}), "n", 3);
    return std::vector<Value>{narrow(b, input(b, "x", kF32, {6}), 0, 2 * kN - 1, 1)};
  });
  Session s = session(1);
  Executable e = s.compile(g);
  for (const int64_t n : {1, 3, 2}) {
    EXPECT_EQ(e.run({Array::scalar(n), numbers({6})})[0].at(0), 2 * double(n));
  }
}

TEST(BindSize, AConstantIsASizeToo) {
  const Graph g = graph_of([](Builder& b) {
    bind_size(b, scalar(b, kI64, 2), "n", 5);
    return std::vector<Value>{narrow(b, input(b, "x", kF32, {5}), 0, 0, kN)};
  });
  Session s = session(1);
  EXPECT_EQ(s.compile(g).run({numbers({5})})[0].shape(), (Dims{2}));
}

TEST(BindSize, OneSizeAfterTheOther) {
  const Graph g = graph_of([](Builder& b) {
    const Value x = input(b, "x", kF32, {kRows}), zero = scalar(b, kF32, 0.0);
    const Value rows = kept_rows(b, x, input(b, "scores", kF32, {kRows}));
    const Value positive = sum(b, cast(b, less(b, zero, rows), kI64), {0});
    bind_size(b, positive, "m", kRows);
    const Value part = narrow(b, x, 0, 0, Dim::symbol("m"));
    return std::vector<Value>{rows, part, sum(b, part, {0})};
  });
  for (const int threads : {1, 2}) {
    Session s = session(threads);
    Executable e = s.compile(g);
    for (const int64_t k : {9, 37, 0, 20}) {
      const Array x = numbers({kRows}, -10);  // -10, -9, ... 26
      const auto y = e.run({x, scores_with(k)});
      EXPECT_EQ(y[0].shape(), (Dims{k}));
      int64_t m = 0;
      for (int64_t i = 0; i < k; ++i) m += y[0].at(i) > 0;
      ASSERT_EQ(y[1].shape(), (Dims{m}));
      EXPECT_EQ(y[2].at(0), double(m * (m - 21)) / 2);
    }
  }
}

TEST(BindSize, ALoopOverWhatWasFound) {
  const Graph g = graph_of([](Builder& b) {
    const Value x = input(b, "x", kF32, {kRows, 4});
    const Value rows = kept_rows(b, x, input(b, "scores", kF32, {kRows}));
    Graph body("body");
    Builder in(body);
    input(in, "t", kI64, {});
    const Value state = input(in, "h", kF32, {4}), row = input(in, "x", kF32, {4});
    const Value next = add(in, mul(in, state, scalar(in, kF32, 0.5)), row);
    body.add_output("h", next);
    body.add_output("y", next);
    ScanAttrs attrs{
        .body = std::make_shared<const Graph>(std::move(body)), .num_carries = 1, .length = kN};
    const Value start = constant(b, Array::zeros(kF32, {4}));
    return b.call(kScanOp, Attrs::of(kScanOp.fields, attrs), {start, rows});
  });
  for (const int threads : {1, 2}) {
    Session s = session(threads);
    Executable e = s.compile(g);
    for (const int64_t k : {5, 0, 37}) {
      const Array x = numbers({kRows, 4});
      const auto y = e.run({x, scores_with(k)});
      ASSERT_EQ(y[1].shape(), (Dims{k, 4}));
      float state = 0;
      for (int64_t i = 0; i < k; ++i) {
        state = state * 0.5F + float(x.at((k - 1 - i) * 10 % kRows * 4));
        EXPECT_EQ(y[1].at(i * 4), state);
      }
      EXPECT_EQ(y[0].at(0), state);
    }
  }
}

TEST(BindSize, TheReferenceSetsSizesToo) {
  const Graph g = graph_of([](Builder& b) {
    const Value x = input(b, "x", kF32, {kRows, 8}), scores = input(b, "scores", kF32, {kRows});
    const Value rows = kept_rows(b, x, scores), total = sum(b, rows, {0});
    const auto states = scan(b, {total}, {rows}, kN, [&](Body& step, Value, auto h, auto row) {
      return ScanStep{{add(step, h[0], row[0])}, {sum(step, step.capture(rows), {0})}};
    });
    return std::vector<Value>{rows, states[0], states[1], dim_size(b, rows, 0)};
  });
  Session s = session(1);
  Executable e = s.compile(g);
  for (const int64_t k : {5, 0, 37}) {
    const Array x = numbers({kRows, 8}), scores = scores_with(k);
    const auto got = e.run({x, scores});
    const auto wanted =
        reference::evaluate(g, {{"x", reference::widen(x)}, {"scores", reference::widen(scores)}});
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(got[i].same_bits(reference::narrow(wanted[i]))) << i;
    }
  }
  const auto refused = [&](int64_t count) {
    return error_of([&] {
      reference::evaluate(first_rows(6), {{"x", reference::widen(numbers({6, 3}))},
                                          {"count", reference::widen(Array::scalar(count))}});
    });
  };
  EXPECT_EQ(refused(7), "the size 'n' is 7, not from 0 to 6");
  EXPECT_EQ(refused(-1), "the size 'n' is -1, not from 0 to 6");
}

TEST(BindSize, WhatNobodyMentionsIsNotComputed) {
  const Graph g = graph_of([](Builder& b) {
    const Value x = input(b, "x", kF32, {kRows, 8});
    kept_rows(b, x, input(b, "scores", kF32, {kRows}));
    return std::vector<Value>{relu(b, x)};
  });
  Session s = session(1);
  EXPECT_EQ(s.compile(g).plan().steps.size(), 1U);
  const Graph less = graph_of([](Builder& b) {
    bind_size(b, input(b, "count", kI64, {}), "n", 6);
    iota(b, kF32, {kN - 3}, 0);
    return std::vector<Value>{relu(b, input(b, "x", kF32, {2}))};
  });
  EXPECT_EQ(s.compile(less).run({Array::scalar(int64_t(1)), numbers({2})})[0].at(1), 2);
}

TEST(BindSize, TextAndBytes) {
  const Graph g = first_rows(6);
  EXPECT_TRUE(parse(print(g), find_op) == g) << print(g);
  EXPECT_TRUE(deserialize(serialize(g), find_op) == g);
}

TEST(BindSize, ABoundThatAnInputDecides) {
  const Dim m = Dim::symbol("m");
  const Graph g = graph_of([&](Builder& b) {
    const Value x = input(b, "x", kF32, {m});
    bind_size(b, input(b, "count", kI64, {}), "n", m);
    return std::vector<Value>{narrow(b, x, 0, 0, kN)};
  });
  Session s = session(1);
  Executable e = s.compile(g);
  for (const int64_t size : {3, 7}) {
    EXPECT_EQ(e.run({numbers({size}), Array::scalar(int64_t(3))})[0].shape(), (Dims{3}));
  }
  EXPECT_EQ(e.compiles(), 2);
  CompileOptions bounded;
  bounded.bounds = {{"m", 8}};
  EXPECT_EQ(error_of([&] { s.compile(g, bounded); }, ErrorKind::kUnsupported),
            "BindSize: the bound m of the size 'n' depends on a size without a value: it must be a "
            "number when the graph is compiled");
}

TEST(BindSize, MistakesAreNamed) {
  Session s = session(2);
  Executable e = s.compile(first_rows(6));
  for (const int64_t n : {-1, 7}) {
    EXPECT_EQ(
        error_of([&] {
          e.run({numbers({6, 3}), Array::scalar(n)});
        }),
        fmt::format("BindSize: the size 'n' is set to {}; it must be from 0 to its bound 6", n));
  }
  EXPECT_EQ(e.run({numbers({6, 3}), Array::scalar(int64_t(6))})[0].shape(), (Dims{6, 3}));

  const auto refusal = [&](const Build& build, ErrorKind kind = ErrorKind::kUser) {
    return error_of([&] { s.compile(graph_of(build)); }, kind);
  };
  const auto bind = [](Builder& b) { return bind_size(b, input(b, "count", kI64, {}), "n", 6); };
  EXPECT_EQ(refusal([&](Builder& b) {
              const Value count = bind(b);
              return std::vector<Value>{bind_size(b, count, "n", 6)};
            }),
            "BindSize: the size 'n' of 'selected' is set by another call, an input, a param or "
            "CompileOptions::bounds as well");
  EXPECT_NE(refusal([&](Builder& b) {
              const Value x = input(b, "x", kF32, {kN});
              bind(b);
              return std::vector<Value>{x};
            }).find("is set by another call, an input"),
            std::string::npos);
  EXPECT_EQ(refusal([&](Builder& b) {
              const Value y = narrow(b, input(b, "x", kF32, {6}), 0, 0, kN);
              bind(b);
              return std::vector<Value>{y};
            }),
            "BindSize: calls before it in 'selected' have the size 'n' that it sets");
  const std::string inner = refusal(
      [&](Builder& b) {
        const auto branch = [&] {
          Graph g("branch");
          Builder in(g);
          g.add_output("n", bind_size(in, input(in, "count", kI64, {}), "n", 6));
          return std::make_shared<const Graph>(std::move(g));
        };
        const Value count = input(b, "count", kI64, {});
        const Value yes = less(b, count, scalar(b, kI64, 3));
        return b.call(kIfOp, Attrs::of(kIfOp.fields, IfAttrs{branch(), branch()}), {yes, count});
      },
      ErrorKind::kUnsupported);
  EXPECT_EQ(inner, "If: BindSize in the body 'branch': only the graph itself can set a size");
  const std::string function = refusal(
      [&](Builder& b) {
        Graph forward("forward");
        Builder in(forward);
        forward.add_output("n", bind(in));
        const Value operands[] = {input(b, "count", kI64, {})};
        return custom_fn(b, std::make_shared<const Graph>(std::move(forward)), nullptr, nullptr,
                         operands);
      },
      ErrorKind::kUnsupported);
  EXPECT_EQ(function,
            "CustomFn: BindSize in the body 'forward': only the graph itself can set a size");
  EXPECT_EQ(error_of([&] { vmap(first_rows(6), 3, {"count"}); }, ErrorKind::kUnsupported),
            "BindSize cannot be batched: it has no rule and no decomposition");
  EXPECT_NO_THROW(s.compile(vmap(first_rows(6), 3, {"x"})));
}

// A few of many rows: much less work.
TEST(BindSize, TimeFollowsTheSize) {
  constexpr int64_t kMany = 1031;
  const Graph g = graph_of([](Builder& b) {
    const Value x = input(b, "x", kF32, {kMany, 256});
    Value rows = kept_rows(b, x, input(b, "scores", kF32, {kMany}));
    const Value w = param(b, "w", kF32, {256, 256});
    for (int i = 0; i < 8; ++i) rows = tanh(b, matmul(b, rows, w));
    return std::vector<Value>{sum(b, rows, {0, 1})};
  });
  Session s = session(1);
  s.weights().set("w", numbers({256, 256}));
  Executable e = s.compile(g);
  const Array x = numbers({kMany, 256});
  const auto seconds = [&](int64_t n) {
    const std::vector<Array> in{x, scores_with(n, kMany)};
    std::vector<Array> out(1);
    return fastest_of(5, [&] { e.run_into(in, out); });
  };
  EXPECT_LT(least_of_tries(0.125, [&] { return seconds(16) / seconds(kMany); }), 0.125);
}

}  // namespace
}  // namespace rlx
