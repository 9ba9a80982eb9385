// Bounded sizes: one plan for all extents, nothing beyond them matters.
#include "rlx/compile/bounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/compile/control.h"
#include "rlx/ops/activation.h"
#include "rlx/ops/attention.h"
#include "rlx/ops/build.h"
#include "rlx/ops/control.h"
#include "rlx/ops/dim_size.h"
#include "rlx/ops/dynamic_slice.h"
#include "rlx/ops/extent.h"
#include "rlx/ops/loops.h"
#include "rlx/ops/reduce.h"
#include "rlx/ops/rms_norm.h"
#include "rlx/ops/rope.h"
#include "rlx/runtime/session.h"
#include "tests/unit/allocation_counter.h"
#include "tests/unit/test_util.h"
#include "tests/unit/timing.h"

namespace rlx {

RLX_USE_OP(Scan);

namespace {

constexpr DType kF32 = DType::kF32, kI64 = DType::kI64;
const Dim kN = Dim::symbol("n");

CompileOptions up_to(int64_t n) {
  CompileOptions options;
  options.bounds = {{"n", n}};
  return options;
}

Array steps(Dims shape) {
  Array a = Array::uninitialized(kF32, std::move(shape));
  float x = -1;
  for (float& v : a.mutable_data<float>()) {
    v = x;
    x = x > 1 ? x - 2.1F : x + 0.37F;
  }
  return a;
}

using Build = std::function<std::vector<Value>(Builder&)>;

Graph graph_of(const Build& build) { return rlx::graph_of("bounded", build); }

// A sum over a bounded axis has the order of the next larger size that was prepared.
enum class Compare { kBits, kRounded };

void expect_equal(const Array& got, const Array& wanted, Compare compare) {
  if (compare == Compare::kBits) {
    EXPECT_TRUE(got.same_bits(wanted));
    return;
  }
  ASSERT_EQ(got.type(), wanted.type());
  for (int64_t i = 0; i < got.num_elements(); ++i) {
    const double a = got.at(i), b = wanted.at(i);
    EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) < 1e-4) << a << b;
  }
}

// One plan at the bound against a plan for each size, and against its calls one by one. Runs go
// from large extents to small ones, so that old values lie beyond the extent; guard zones start
// with NaN everywhere.
void expect_same(const Build& build, const std::function<std::vector<Array>(int64_t)>& inputs,
                 Compare compare = Compare::kBits) {
  const Graph g = graph_of(build);
  for (const int threads : {1, 2}) {
    for (const bool guards : {false, true}) {
      Session s = session(threads);
      CompileOptions options = up_to(37);
      options.guard_zones = guards;
      options.fuse_always = guards;
      Executable bounded = s.compile(g, options);
      Executable exact = s.compile(g);
      options.fuse = false;
      Executable alone = s.compile(g, options);
      for (const int64_t n : {37, 36, 17, 16, 5, 2, 1, 0}) {
        const auto wanted = exact.run(inputs(n)), got = bounded.run(inputs(n));
        const auto unfused = alone.run(inputs(n));
        ASSERT_EQ(wanted.size(), got.size());
        for (size_t i = 0; i < wanted.size(); ++i) {
          SCOPED_TRACE(fmt::format("n = {}, output {}", n, i));
          expect_equal(got[i], wanted[i], compare);
          expect_equal(got[i], unfused[i], Compare::kBits);
        }
      }
      EXPECT_EQ(bounded.compiles(), 1);
      EXPECT_EQ(exact.compiles(), 8);
    }
  }
}

TEST(Bounds, RowsOfANetwork) {
  expect_same(
      [](Builder& b) {
        const Value x = input(b, "x", kF32, {kN, 8});
        const Value w = input(b, "w", kF32, {8, 16});
        const Value bias = input(b, "bias", kF32, {16});
        const Value h = relu(b, add(b, matmul(b, x, w), bias));
        return std::vector<Value>{softmax(b, h), layer_norm(b, h, bias, bias),
                                  transpose(b, h, {1, 0}), reshape(b, h, {kN * 16})};
      },
      [](int64_t n) {
        return std::vector<Array>{steps({n, 8}), steps({8, 16}), steps({16})};
      });
}

TEST(Bounds, SumsOverTheExtentOnly) {
  for (const ReduceKind kind : {ReduceKind::kSum, ReduceKind::kMax, ReduceKind::kMin,
                                ReduceKind::kProd, ReduceKind::kMean}) {
    expect_same(
        [&](Builder& b) {
          const Value x = input(b, "x", kF32, {3, kN, 5});
          return std::vector<Value>{reduce(b, kind, x, {1}), reduce(b, kind, x, {0, 1, 2}),
                                    reduce(b, kind, x, {2})};
        },
        [](int64_t n) {
          return std::vector<Array>{steps({3, n, 5})};
        },
        Compare::kRounded);
  }
}

TEST(Bounds, ProductsAndSoftmaxOverTheExtent) {
  expect_same(
      [](Builder& b) {
        const Value q = input(b, "q", kF32, {4, 8}), k = input(b, "k", kF32, {kN, 8});
        const Value p = softmax(b, matmul(b, q, transpose(b, k, {1, 0})));
        return std::vector<Value>{p, matmul(b, p, k)};
      },
      [](int64_t n) {
        return std::vector<Array>{steps({4, 8}), steps({n, 8})};
      });
}

TEST(Bounds, AttentionOfAWholePrompt) {
  for (const AttentionMask mask : {AttentionMask::kNone, AttentionMask::kCausal}) {
    expect_same(
        [&](Builder& b) {
          const Value x = input(b, "x", kF32, {2, kN, 2, 8});
          const Value cos = input(b, "cos", kF32, {64, 4}), sin = input(b, "sin", kF32, {64, 4});
          const Value q = rope(b, rms_norm(b, x, {}, {}), cos, sin);
          AttentionAttrs attrs;
          attrs.mask = mask;
          return std::vector<Value>{attention(b, q, x, x, attrs, {})};
        },
        [](int64_t n) {
          return std::vector<Array>{steps({2, n, 2, 8}), steps({64, 4}), steps({64, 4})};
        });
  }
}

// --- Fusion

// "group:matmul elementwise_region:stages": the kernels of all steps. Each is prepared at the bound
// and at 1, 2, 4, 8, 16 and 32.
std::string kernels_of(const Build& build) {
  Session s = session(1);
  CompileOptions options = up_to(37);
  options.fuse_always = true;
  const Executable e = s.compile(graph_of(build), options);
  std::string list;
  for (const PlanStep& step : e.plan().steps) {
    list += (list.empty() ? "" : " ") + std::string(step.entry->name);
    EXPECT_EQ(step.variants.size(), 6u) << step.entry->name;
  }
  return list;
}

TEST(Bounds, RowsAreFused) {
  const Build network = [](Builder& b) {
    const Value x = input(b, "x", kF32, {kN, 8});
    const Value w = input(b, "w", kF32, {8, 16}), v = input(b, "v", kF32, {16, 8});
    const Value c = input(b, "c", kF32, {16}), gamma = input(b, "gamma", kF32, {8});
    const Value up = activation(b, ActivationKind::kGelu, add(b, matmul(b, x, w), c));
    const Value y = add(b, matmul(b, up, v), x);
    const Value normed = mul(b, rms_norm(b, y, gamma, {}), 0.5);
    const Value p = softmax(b, add(b, mul(b, input(b, "z", kF32, {kN, 16}), 3), c));
    const Value odd = tanh(b, mul(b, mul(b, x, x), gamma));
    return std::vector<Value>{y, normed, p, odd, sum(b, exp(b, x), {1})};
  };
  EXPECT_EQ(
      kernels_of(network),
      "group:matmul group:matmul group:rows2 group:rows elementwise_region:stages group:rows");
  expect_same(network, [](int64_t n) {
    return std::vector<Array>{steps({n, 8}), steps({8, 16}), steps({16, 8}),
                              steps({16}),   steps({8}),     steps({n, 16})};
  });
}

// Tails are filled between calls: a fill stays a step of its own.
TEST(Bounds, FusionKeepsFills) {
  const Build build = [](Builder& b) {
    const Value x = input(b, "x", kF32, {3, kN}), y = input(b, "y", kF32, {kN, 3});
    const Value w = exp(b, mul(b, x, 0.5));
    const Value means = mean(b, mul(b, y, y), {0});
    return std::vector<Value>{softmax(b, w), add(b, matmul(b, w, y), means),
                              sqrt(b, add(b, sum(b, mul(b, x, x), {1}), 1))};
  };
  const auto inputs = [](int64_t n) { return std::vector<Array>{steps({3, n}), steps({n, 3})}; };
  expect_same(build, inputs, Compare::kRounded);
}

// What lies between the rows of a product would be written, or left out, piece by piece.
TEST(Bounds, GapsAreNotFused) {
  const Build build = [](Builder& b) {
    const Value x = input(b, "x", kF32, {4, 8}), w = input(b, "w", kF32, {8, kN});
    return std::vector<Value>{relu(b, mul(b, matmul(b, x, w), 2))};
  };
  EXPECT_EQ(kernels_of(build), "matmul:gemm elementwise_region:stages");
  expect_same(build, [](int64_t n) { return std::vector<Array>{steps({4, 8}), steps({8, n})}; });
  Session s = session(1);
  CompileOptions options = up_to(37);
  options.fuse_always = true;
  const std::string report = s.compile(graph_of(build), options).report().to_string();
  EXPECT_NE(report.find("it takes dense memory only, which less than the bound of n is not"),
            std::string::npos)
      << report;
}

// Copies that the plan inserts follow the extent as well: into rows, into a Concat, to an output.
TEST(Bounds, CopiesFollowTheExtent) {
  const Build build = [](Builder& b) {
    const Value x = input(b, "x", kF32, {8, kN}), y = input(b, "y", kF32, {kN, 3});
    const Value rows = transpose(b, x, {1, 0});
    const std::vector<Value> parts{rows, exp(b, y)};
    return std::vector<Value>{softmax(b, rows), concat(b, parts, 1), rows};
  };
  EXPECT_EQ(kernels_of(build),
            "activation:float copy:strided softmax:row copy:strided copy:strided");
  expect_same(build, [](int64_t n) { return std::vector<Array>{steps({8, n}), steps({n, 3})}; });
}

// What decompositions put behind a fill. The softmax takes dense rows, so it always reads all of
// them.
TEST(Bounds, FillsReachThroughCopies) {
  const Graph g = graph_of([](Builder& b) {
    const Value x = input(b, "x", kF32, {kN, 3});
    const Value filled = fill_tail(b, x, extent(b, kN), 0, FillValue::kLowest);
    return std::vector<Value>{softmax(b, transpose(b, filled, {1, 0}))};
  });
  const Plan plan = plan_legal_graph(g, cpu_device().kernels(), up_to(37));
  ASSERT_EQ(plan.steps.size(), 3U);
  EXPECT_EQ(plan.steps[1].op->name, "Copy");
  for (const PlanStep& step : plan.steps) EXPECT_EQ(step.variants.size(), 0U) << step.op->name;
}

// The product is prepared at other sizes than the fill of its right operand, which lacks m.
TEST(Bounds, FillsReachAsFarAsTheirReaders) {
  Graph g("product");
  Builder b(g);
  const Dim m = Dim::symbol("m");
  const Value x = input(b, "x", kF32, {m, kN}), y = input(b, "y", kF32, {kN, 3});
  const Value product = matmul(b, x, y);
  g.add_output("y0", product);
  const Value table = input(b, "table", kF32, {5, m}), i = input(b, "i", kI64, {kN});
  g.add_output("y1", gather(b, table, i));
  g.add_output("y2", relu(b, add(b, product, 1)));
  g.add_output("y3", tanh(b, mul(b, x, 0.5)));
  Session s = session(1);
  CompileOptions options;
  options.bounds = {{"m", 9}, {"n", 37}};
  options.guard_zones = true;
  options.fuse_always = true;
  Executable bounded = s.compile(g, options), exact = s.compile(g);
  for (const char* fused : {"group:matmul", "elementwise_region:stages"}) {
    const auto& all = bounded.plan().steps;
    const auto step =
        std::ranges::find_if(all, [&](const PlanStep& p) { return p.entry->name == fused; });
    ASSERT_NE(step, all.end()) << fused;
    EXPECT_EQ(step->variants.size(), 11U) << fused;  // {1, 4, 9} by {1, 4, 16, 37}, less the bounds
  }
  for (const int64_t n : {37, 20, 5, 1}) {
    for (const int64_t rows : {9, 2, 1}) {
      Array index = Array::zeros(kI64, {n});
      for (int64_t& at : index.mutable_data<int64_t>()) at = 3;
      const std::vector<Array> in{steps({rows, n}), steps({n, 3}), steps({5, rows}), index};
      const auto got = bounded.run(in), wanted = exact.run(in);
      SCOPED_TRACE(fmt::format("n = {}, m = {}", n, rows));
      expect_equal(got[0], wanted[0], Compare::kRounded);
      expect_equal(got[1], wanted[1], Compare::kBits);
      expect_equal(got[2], wanted[2], Compare::kRounded);
      expect_equal(got[3], wanted[3], Compare::kBits);
    }
  }
}

TEST(Bounds, GathersAndTheSizeItself) {
  expect_same(
      [](Builder& b) {
        const Value table = input(b, "table", kF32, {7, 3}), i = input(b, "i", kI64, {kN});
        const Value rows = gather(b, table, i);
        return std::vector<Value>{rows, dim_size(b, rows, 0), iota(b, kI64, {kN}, 0)};
      },
      [](int64_t n) {
        Array i = Array::zeros(kI64, {n});
        int64_t next = 0;
        for (int64_t& x : i.mutable_data<int64_t>()) x = next++ % 7;
        return std::vector<Array>{steps({7, 3}), i};
      });
}

TEST(Bounds, AScanRunsForTheExtent) {
  expect_same(
      [](Builder& b) {
        const Value h = input(b, "h", kF32, {4}), xs = input(b, "xs", kF32, {kN, 4});
        Graph body("body");
        Builder in(body);
        input(in, "t", kI64, {});
        const Value state = input(in, "h", kF32, {4}), x = input(in, "x", kF32, {4});
        const Value next = tanh(in, add(in, state, x));
        body.add_output("h", next);
        body.add_output("y", next);
        ScanAttrs attrs{
            .body = std::make_shared<const Graph>(std::move(body)), .num_carries = 1, .length = kN};
        return b.call(kScanOp, Attrs::of(kScanOp.fields, attrs), {h, xs});
      },
      [](int64_t n) {
        return std::vector<Array>{steps({4}), steps({n, 4})};
      });
}

// What decompositions bring in is masked like the rest.
TEST(Bounds, DecomposedCalls) {
  const Dim m = Dim::symbol("m");
  const Graph g = graph_of([&](Builder& b) {
    const Value q = input(b, "q", kF32, {2, m, 2, 8}), k = input(b, "k", kF32, {2, kN, 2, 8});
    const Value x = reshape(b, narrow(b, k, 0, 0, 1), {kN, 16});
    std::vector<Value> y;
    for (const AttentionMask mask : {AttentionMask::kNone, AttentionMask::kCausal}) {
      AttentionAttrs attrs;
      attrs.mask = mask;
      y.push_back(attention(b, q, k, k, attrs));
    }
    y.push_back(softmax(b, x, 0));
    y.push_back(rms_norm(b, x, {}, {}));
    y.push_back(matmul(b, transpose(b, x, {1, 0}), relu(b, x)));
    return y;
  });
  for (const bool fuse : {false, true}) {
    Session s = session(2);
    CompileOptions options = up_to(37), plain;
    options.bounds["m"] = 9;
    options.fuse = fuse;
    options.guard_zones = true;
    options.legalize.force_decompose = true;
    Executable bounded = s.compile(g, options), exact = s.compile(g, plain);
    for (const int64_t n : {37, 20, 5, 1}) {
      for (const int64_t queries : {9, 3, 0}) {
        if (queries > n) continue;
        const std::vector<Array> in{steps({2, queries, 2, 8}), steps({2, n, 2, 8})};
        const auto got = bounded.run(in), wanted = exact.run(in);
        for (size_t i = 0; i < got.size(); ++i) {
          SCOPED_TRACE(fmt::format("n {}, m {}, output {}", n, queries, i));
          expect_equal(got[i], wanted[i], Compare::kRounded);
        }
      }
    }
  }
}

// Parts behind one of bounded size move with its extent.
TEST(Bounds, PartsStandSideBySide) {
  expect_same(
      [](Builder& b) {
        const Value x = input(b, "x", kF32, {2, kN, 3}), y = input(b, "y", kF32, {2, 2, 3});
        const Value r = relu(b, x), both = concat(b, std::vector{r, y, r, y}, 1);
        const Value rows = reshape(b, narrow(b, x, 2, 0, 1), {2, kN});
        return std::vector<Value>{both,
                                  concat(b, std::vector{y, x}, 1),
                                  concat(b, std::vector{x, x}, 2),
                                  softmax(b, concat(b, std::vector{rows, rows}, 1)),
                                  sum(b, both, {1}),
                                  narrow(b, both, 1, kN, 2)};
      },
      [](int64_t n) {
        return std::vector<Array>{steps({2, n, 3}), steps({2, 2, 3})};
      },
      Compare::kRounded);
}

TEST(Bounds, PartsOfTwoSizes) {
  const Dim m = Dim::symbol("m");
  const Graph g = graph_of([&](Builder& b) {
    const Value x = input(b, "x", kF32, {kN, 2}), y = input(b, "y", kF32, {m, 2});
    const Value both = concat(b, std::vector{relu(b, y), x, y}, 0);
    return std::vector<Value>{sum(b, both, {0}), mean(b, relu(b, both), {0})};
  });
  Session s = session(2);
  CompileOptions options = up_to(9);
  options.bounds["m"] = 17;
  Executable bounded = s.compile(g, options), exact = s.compile(g);
  for (const int64_t n : {9, 0, 3}) {
    for (const int64_t rows : {17, 5, 1, 0}) {
      const std::vector<Array> in{steps({n, 2}), steps({rows, 2})};
      const auto got = bounded.run(in), wanted = exact.run(in);
      expect_equal(got[0], wanted[0], Compare::kRounded);
      expect_equal(got[1], wanted[1], Compare::kRounded);
    }
  }
  EXPECT_EQ(bounded.compiles(), 1);
}

TEST(Bounds, TheLastRowIsThatOfTheExtent) {
  const Graph g = graph_of([](Builder& b) {
    return std::vector<Value>{narrow(b, input(b, "x", kF32, {kN, 3}), 0, kN - 1, 1)};
  });
  Session s = session(1);
  Executable e = s.compile(g, up_to(9));
  for (const int64_t n : {1, 4, 9}) {
    const Array x = steps({n, 3});
    EXPECT_EQ(e.run({x})[0].at(2), x.at(3 * n - 1));
  }
  const std::string text = error_of([&] { e.run({steps({0, 3})}); });
  EXPECT_NE(text.find("-1"), std::string::npos) << text;
}

// n - 3 of two rows: refused as it is where n is known, and no variant is prepared for it.
TEST(Bounds, SizesBelowZero) {
  const Graph g = graph_of([](Builder& b) {
    const Value x = input(b, "x", kF32, {kN}), zero = scalar(b, kF32, 0.0);
    const Value i = iota(b, kF32, {kN - 3, 4}, 0);
    const auto trips = scan(b, {zero}, {}, kN - 3, [](Body& step, Value, auto h, auto) {
      return ScanStep{{add(step, h[0], 1.0)}, {}};
    });
    return std::vector<Value>{matmul(b, transpose(b, i, {1, 0}), i), sum(b, x, {0}), trips[0]};
  });
  for (const int threads : {1, 2}) {
    Session s = session(threads);
    Executable e = s.compile(g, up_to(37)), exact = s.compile(g);
    for (const int64_t n : {2, 0}) {
      EXPECT_EQ(error_of([&] { e.run({steps({n})}); }),
                fmt::format("the size -3 + n in 'bounded' is {}, with n = {}", n - 3, n));
      EXPECT_NE(error_of([&] { exact.run({steps({n})}); }).find("negative"), std::string::npos);
    }
    for (const int64_t n : {3, 4, 37}) {
      const auto got = e.run({steps({n})}), wanted = exact.run({steps({n})});
      for (size_t i = 0; i < 3; ++i) expect_equal(got[i], wanted[i], Compare::kRounded);
    }
  }
  const Graph square = graph_of([](Builder& b) {
    const Value i = iota(b, kF32, {kN * kN - 3}, 0), x = input(b, "x", kF32, {kN});
    return std::vector<Value>{sum(b, i, {0}), x};
  });
  Session s = session(1);
  EXPECT_EQ(error_of([&] { s.compile(square, up_to(8)); }, ErrorKind::kUnsupported),
            "Iota: the size -3 + n*n may be negative, and is no sum of multiples of bounded sizes");
}

// Neither operand nor result has the size, only an attribute or a body.
TEST(Bounds, SizesInAttributes) {
  expect_same(
      [](Builder& b) {
        const Value x = input(b, "x", kF32, {kN}), table = input(b, "table", kF32, {40});
        Graph inner("inner");
        Builder in(inner);
        const Value i = iota(in, kF32, {kN}, 0);
        inner.add_output("y", mul(in, input(in, "s", kF32, {}), sum(in, i, {0})));
        const Value operands[] = {sum(b, table, {0})};
        const auto function = std::make_shared<const Graph>(std::move(inner));
        return std::vector<Value>{narrow(b, table, 0, kN + 1, 2), sum(b, x, {0}),
                                  custom_fn(b, function, nullptr, nullptr, operands)[0],
                                  extent(b, 2 * kN + 1)};
      },
      [](int64_t n) {
        return std::vector<Array>{steps({n}), steps({40})};
      },
      Compare::kRounded);
}

TEST(Bounds, SizesThatShrink) {
  const Graph g = graph_of([](Builder& b) {
    const Value x = input(b, "x", kF32, {kN}), t = input(b, "t", kF32, {8});
    return std::vector<Value>{relu(b, x), relu(b, narrow(b, t, 0, 0, 8 - kN))};
  });
  Session s = session(1);
  EXPECT_EQ(error_of([&] { s.compile(g, up_to(8)); }, ErrorKind::kUnsupported),
            "Narrow: the size 8 - n of [8 - n] shrinks where n grows, which has a bound instead of "
            "a value");
  const Graph square = graph_of([](Builder& b) {
    const Value x = input(b, "x", kF32, {kN}), t = input(b, "t", kF32, {16});
    return std::vector<Value>{relu(b, x), relu(b, narrow(b, t, 0, 0, 8 * kN - kN * kN))};
  });
  EXPECT_NE(error_of([&] { s.compile(square, up_to(8)); }, ErrorKind::kUnsupported)
                .find("shrinks where n grows"),
            std::string::npos);
  // Larger only just before the bound, where no sample of every second size falls.
  const Graph late = graph_of([](Builder& b) {
    const Value x = input(b, "x", kF32, {kN}), t = input(b, "t", kF32, {99980001});
    return std::vector<Value>{relu(b, x), relu(b, narrow(b, t, 0, 0, 19998 * kN - kN * kN))};
  });
  EXPECT_NE(error_of([&] { s.compile(late, up_to(10000)); }, ErrorKind::kUnsupported)
                .find("shrinks where n grows"),
            std::string::npos);
}

TEST(Bounds, MistakesAreNamed) {
  Session s = session(1);
  const auto refusal = [&](const Build& build, ErrorKind kind = ErrorKind::kUnsupported) {
    return error_of([&] { s.compile(graph_of(build), up_to(8)); }, kind);
  };
  const std::string joined = refusal([](Builder& b) {
    const std::vector<Value> parts{input(b, "x", DType::kQ8_0, {kN, 32}),
                                   input(b, "y", DType::kQ8_0, {3, 32})};
    return std::vector<Value>{concat(b, parts, 0)};
  });
  EXPECT_NE(joined.find("Concat: axis 0 of operand 0, q8_0[n, 32], has a bounded size"),
            std::string::npos)
      << joined;
  EXPECT_NE(refusal([](Builder& b) {
              const Value x = input(b, "x", kF32, {4, kN});
              return std::vector<Value>{reshape(b, x, {4 * kN})};
            }).find("the bounded size n must stay the leading factor"),
            std::string::npos);
  EXPECT_NE(
      refusal([](Builder& b) {
        const Value x = input(b, "x", kF32, {kN}), t = input(b, "t", kF32, {9});
        DynamicSliceAttrs window;
        window.sizes = b.shape(x);
        return std::vector<Value>{add(b, x, dynamic_slice(b, t, input(b, "i", kI64, {}), window))};
      }).find("DynamicSlice: the size of the window that places are checked against"),
      std::string::npos);
  EXPECT_NE(refusal([](Builder& b) {
              const Value x = input(b, "x", kF32, {kN});
              return std::vector<Value>{narrow(b, x, 0, 0, 3)};
            }).find("use DynamicSlice"),
            std::string::npos);
  EXPECT_NE(refusal([](Builder& b) { return std::vector<Value>{input(b, "x", kF32, {3})}; },
                    ErrorKind::kUser)
                .find("no input of 'bounded' has the size 'n'"),
            std::string::npos);
  Executable e = s.compile(graph_of([](Builder& b) {
                             return std::vector<Value>{relu(b, input(b, "x", kF32, {kN, 2}))};
                           }),
                           up_to(8));
  const std::string text = error_of([&] { e.run({steps({9, 2})}); });
  EXPECT_NE(text.find("f32[n, 2] with n up to = 8, got f32[9, 2]"), std::string::npos) << text;
}

TEST(Bounds, SymbolsWithoutABoundAreStillSpecialized) {
  const Graph g = graph_of([](Builder& b) {
    const Value x = input(b, "x", kF32, {Dim::symbol("m"), kN});
    return std::vector<Value>{sum(b, x, {1})};
  });
  Session s = session(1);
  Executable e = s.compile(g, up_to(16)), exact = s.compile(g);
  for (const int64_t m : {2, 3}) {
    for (const int64_t n : {1, 9, 16}) {
      EXPECT_TRUE(e.run({steps({m, n})})[0].same_bits(exact.run({steps({m, n})})[0]));
    }
  }
  EXPECT_EQ(e.compiles(), 2);
  EXPECT_EQ(exact.compiles(), 6);
}

// A long chain at a small extent: much less work, and no allocation.
TEST(Bounds, TimeFollowsTheExtent) {
  const Graph g = graph_of([](Builder& b) {
    Value x = input(b, "x", kF32, {kN, 256});
    const Value w = param(b, "w", kF32, {256, 256});
    for (int i = 0; i < 4; ++i) x = tanh(b, matmul(b, x, w));
    return std::vector<Value>{x};
  });
  Session s = session(1);
  s.weights().set("w", steps({256, 256}));
  Executable e = s.compile(g, up_to(1024));
  const auto seconds = [&](int64_t n) {
    const std::vector<Array> in{steps({n, 256})};
    std::vector<Array> out(1);
    return fastest_of(5, [&] { e.run_into(in, out); });
  };
  EXPECT_LT(least_of_tries(0.125, [&] { return seconds(16) / seconds(1024); }), 0.125);
}

}  // namespace
}  // namespace rlx
