// Loops built from functions, and what derivatives promise about them.
#include "rlx/ops/loops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/error.h"
#include "rlx/base/philox.h"
#include "rlx/ops/build.h"
#include "rlx/ops/control.h"
#include "rlx/runtime/session.h"
#include "rlx/transform/grad.h"
#include "rlx/transform/jvp.h"
#include "tests/unit/test_util.h"

namespace rlx {

RLX_USE_OP(Scan);

namespace {

using Values = std::vector<Value>;
constexpr DType kF32 = DType::kF32, kF64 = DType::kF64, kI64 = DType::kI64;

std::vector<Array> run(const Graph& g, const std::vector<Array>& in = {}) {
  Session s(cpu_device());
  return s.compile(g).run(in);
}

TEST(Loops, DrawsDifferFromRoundToRoundAndFollowTheIndex) {
  Graph g;
  Builder b(g);
  const Values r = scan(b, {}, {}, 4, [](Body& s, Value, auto, auto) {
    return ScanStep{{}, {rng_uniform(s, kF32, {}, 0, 1, 7)}};
  });
  g.add_output("y", r[0]);
  const auto y = run(g)[0];
  for (uint64_t i = 0; i < 4; ++i) {
    const float expected = uniform_f32(philox_block(rng_fold(0, i), 7, 0).word[0]);
    EXPECT_EQ(y.data<float>()[i], expected);
  }
}

TEST(Loops, NestedDrawsAllDiffer) {
  Graph g;
  Builder b(g);
  const Value n = scalar(b, kI64, 0);
  const Values r = scan(b, {}, {}, 3, [&](Body& outer, Value, auto, auto) {
    const Values rows = scan(outer, {}, {}, 2, [&](Body& inner, Value, auto, auto) {
      const Values chosen = if_else(
          inner, constant(inner, Array::scalar(true)),
          [](Body& s) { return Values{rng_uniform(s, kF32, {}, 0, 1, 1)}; },
          [](Body& s) { return Values{scalar(s, kF32, 0)}; });
      return ScanStep{{}, {chosen[0]}};
    });
    const Values looped = while_loop(
        outer, {outer.capture(n), scalar(outer, kF32, 0)},
        [](Body& s, auto c) { return less(s, c[0], scalar(s, kI64, 2)); },
        [](Body& s, auto c) {
          return Values{add(s, c[0], 1), rng_uniform(s, kF32, {}, 0, 1, 2)};
        });
    return ScanStep{{}, {rows[0], looped[1]}};
  });
  g.add_output("rows", r[0]);
  g.add_output("looped", r[1]);
  std::set<float> seen;
  for (const Array& a : run(g)) {
    for (float x : a.data<float>()) seen.insert(x);
  }
  EXPECT_EQ(seen.size(), 9u);  // 6 of the inner loop, 3 of the rounds that came last
}

TEST(Loops, ASeedIsFoldedNotReplaced) {
  Graph g;
  Builder b(g);
  const Value seed = input(b, "seed", DType::kU64, {});
  const Values r = scan(b, {}, {}, 2, [&](Body& s, Value, auto, auto) {
    return ScanStep{{}, {rng_uniform(s, kF32, {}, 0, 1, 7, s.capture(seed))}};
  });
  g.add_output("y", r[0]);
  const auto y = run(g, {Array::scalar(uint64_t(99))})[0];
  EXPECT_EQ(y.data<float>()[1], uniform_f32(philox_block(rng_fold(99, 1), 7, 0).word[0]));
}

TEST(Loops, WrongStepsAreErrors) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {3}), s = input(b, "s", kF32, {});
  EXPECT_NE(error_of([&] {
              scan(b, {x}, {}, 3, [](Body&, Value, auto, auto) { return ScanStep{}; });
            }).find("the step gives 0 carries, there are 1"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              scan(b, {}, {s}, 3, [](Body&, Value, auto, auto) { return ScanStep{}; });
            }).find("an x is a scalar"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              if_else(
                  b, s,
                  [](Body& t) {
                    return Values{t.capture({1000, 0})};
                  },
                  [](Body&) { return Values{}; });
            }).find("a value that is not one of the graph around it"),
            std::string::npos);
}

// x <- x (2 - x) to a fixed point, without a bound.
Graph unbounded() {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF64, {});
  const Values r = while_loop(
      b, {x}, [](Body& s, auto c) { return less(s, c[0], scalar(s, kF64, 0.9)); },
      [](Body& s, auto c) { return Values{mul(s, c[0], sub(s, scalar(s, kF64, 2), c[0]))}; });
  g.add_output("y", r[0]);
  return g;
}

TEST(Loops, AnUnboundedLoopHasForwardModeAndAnErrorInReverse) {
  const Graph g = unbounded();
  EXPECT_NE(error_of([&] { grad(g, "y", {"x"}); }, ErrorKind::kUnsupported)
                .find("without max_iterations"),
            std::string::npos);
  const auto out = run(jvp(g, {"x"}), {Array::scalar(0.3), Array::scalar(1.0)});
  double x = 0.3, t = 1;
  while (x < 0.9) {
    t *= 2 - 2 * x;
    x *= 2 - x;
  }
  EXPECT_NEAR(out[0].at(0), x, 1e-14);
  EXPECT_NEAR(out[1].at(0), t, 1e-14);
}

// loss = sum of the last state of a recurrence of `length` steps.
Graph recurrence(int64_t length, int64_t checkpoints) {
  Graph g;
  Builder b(g);
  const Value h = input(b, "h", kF32, {4096}), w = input(b, "w", kF32, {4096});
  const Values r = scan(b, {h}, {}, length,
                        [&](Body& s, Value, auto c, auto) {
                          return ScanStep{{tanh(s, add(s, mul(s, c[0], s.capture(w)), c[0]))}, {}};
                        },
                        {.checkpoints = checkpoints});
  g.add_output("loss", sum(b, r[0], {0}));
  return grad(g, "loss", {"h", "w"});
}

TEST(Loops, CheckpointsSaveMemoryAndChangeNoBit) {
  constexpr int64_t kLength = 402;  // 20 segments of 20, and 2 steps
  Session s(cpu_device());
  Executable all = s.compile(recurrence(kLength, 0)), few = s.compile(recurrence(kLength, 20));
  const int64_t state = 4096 * 4;
  EXPECT_GT(all.estimate().total(), kLength * state);
  EXPECT_LT(few.estimate().total(), 70 * state);  // about 2 x (20 + 20) and what a step needs
  Array h = Array::full(kF32, {4096}, 0.5), w = Array::full(kF32, {4096}, 0.25);
  h.mutable_data<float>()[7] = -0.3F;
  const auto x = all.run({h, w}), y = few.run({h, w});
  for (size_t i = 0; i < x.size(); ++i) EXPECT_TRUE(x[i].same_bits(y[i])) << i;
}

TEST(Loops, SymbolicLengthsAndCheckpoints) {
  Graph g;
  Builder b(g);
  const Dim n = Dim::symbol("n");
  const Value h = input(b, "h", kF64, {}), x = input(b, "x", kF64, {n});
  const Values r = scan(b, {h}, {x}, n,
                        [](Body& s, Value, auto c, auto xs) {
                          return ScanStep{{add(s, mul(s, c[0], xs[0]), xs[0])}, {}};
                        },
                        {.reverse = true, .checkpoints = 3});
  g.add_output("loss", r[0]);
  const Graph gradient = grad(g, "loss", {"h", "x"});
  Session s(cpu_device());
  Executable e = s.compile(gradient);
  for (const int64_t length : {0, 1, 2, 3, 7, 9}) {
    Array xs = Array::uninitialized(kF64, {length});
    for (int64_t i = 0; i < length; ++i)
      xs.mutable_data<double>()[size_t(i)] = 0.5 + 0.1 * double(i);
    const auto out = e.run({Array::scalar(2.0), xs});
    // h <- (h + 1) x, from the last x to the first: dx_i = (h before i + 1) times all later ones.
    std::vector<double> before(static_cast<size_t>(length));
    double state = 2, product = 1;
    for (int64_t i = length; i-- > 0;) {
      before[size_t(i)] = state;
      state = (state + 1) * xs.at(i);
    }
    EXPECT_NEAR(out[0].at(0), state, 1e-12 * (1 + state));
    for (int64_t i = 0; i < length; ++i) {
      EXPECT_NEAR(out[2].at(i), (before[size_t(i)] + 1) * product, 1e-10) << length << " " << i;
      product *= xs.at(i);
    }
    EXPECT_NEAR(out[1].at(0), product, 1e-12);
  }
}

}  // namespace
}  // namespace rlx
