// What a run tells about itself: spans and totals of a profile, and the search for NaN.
#include "rlx/runtime/profile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/ops/build.h"
#include "rlx/ops/control.h"
#include "rlx/ops/custom.h"
#include "rlx/runtime/session.h"
#include "tests/unit/allocation_counter.h"
#include "tests/unit/test_util.h"

namespace rlx {

RLX_USE_OP(Scan);
RLX_USE_OP(While);

namespace {

constexpr DType kF32 = DType::kF32;
constexpr int64_t kTrips = 9, kChunks = 12;

// y = x + 1, a chunk for each element.
CustomDefinition next() {
  CustomDefinition d;
  d.name = "next";
  d.infer = [](std::span<const TensorType> operands, std::string_view) {
    return std::vector{operands[0]};
  };
  return d;
}

void add_next(Session& s) {
  CustomKernel k;
  k.name = "next";
  k.chunks = [](const CustomCall& c) { return c.operands[0].num_elements(); };
  k.run = [](const CustomRun& r, int64_t i) { r.out<float>(0)[i] = r.in<float>(0)[i] + 1; };
  s.add_kernel(k);
}

// A call with chunks, then a loop around another, then a small step.
Graph graph() {
  Graph inner("body");
  Builder ib(inner);
  input(ib, "index", DType::kI64, {});
  const Value carry = input(ib, "carry", kF32, {kChunks});
  ib.set_label("inside");
  inner.add_output("next", custom(ib, next(), {{carry}})[0]);
  Graph g;
  Builder b(g);
  b.set_label("first");
  const Value x = custom(b, next(), {{input(b, "x", kF32, {kChunks})}})[0];
  ScanAttrs scan{
      .body = std::make_shared<const Graph>(std::move(inner)), .num_carries = 1, .length = kTrips};
  b.set_label("loop");
  g.add_output("y", neg(b, b.op(kScanOp, scan, {x})));
  return g;
}

const Profile::Row& row(const std::vector<Profile::Row>& rows, std::string_view op,
                        std::string_view label) {
  for (const Profile::Row& r : rows) {
    if (r.op == op && r.label == label) return r;
  }
  throw std::runtime_error(fmt::format("no row of {} {}", op, label));
}

void expect_counts(const Profile& profile) {
  const std::vector<Profile::Row> rows = profile.rows();
  const Profile::Row &first = row(rows, "Custom", "first"), &inside = row(rows, "Custom", "inside"),
                     &loop = row(rows, "Scan", "loop");
  EXPECT_EQ(first.runs, 1);
  EXPECT_EQ(inside.runs, kTrips);
  EXPECT_EQ(inside.depth, 1);
  EXPECT_EQ(loop.runs, 1);
  EXPECT_EQ(loop.trips, kTrips);
  EXPECT_EQ(inside.bytes, double(kTrips * kChunks * 8));
  if (profile.threads() > 1) {
    EXPECT_EQ(first.chunks, kChunks);
    EXPECT_EQ(inside.chunks, kTrips * kChunks);
  }
  EXPECT_GE(loop.nanoseconds, inside.nanoseconds);
  EXPECT_LE(loop.nanoseconds, double(profile.nanoseconds()));
  EXPECT_GT(inside.busy, 0);
}

TEST(Profile, SpansNestAndTotalsCount) {
  for (const int threads : {1, 2, 5}) {
    Session s = session(threads);
    add_next(s);
    Executable e = s.compile(graph());
    Profile profile;
    RunOptions options;
    options.profile = &profile;
    const Array x = Array::zeros(kF32, {kChunks});
    EXPECT_EQ(e.run({x}, options)[0].data<float>()[3], -float(kTrips + 1));
    EXPECT_LE(profile.threads(), threads);
    EXPECT_EQ(profile.dropped(), 0);
    expect_counts(profile);
    for (const ProfileRecorder& r : profile.recorders()) {
      const auto spans = r.spans();
      for (size_t i = 0; i < spans.size(); ++i) {
        EXPECT_GE(spans[i].begin, 0);
        EXPECT_LE(spans[i].begin, spans[i].end);
        EXPECT_LE(spans[i].end, profile.nanoseconds());
        // They come in the order of their ends; each contains an earlier one or follows it.
        for (size_t j = 0; j < i; ++j) {
          EXPECT_LE(spans[j].end, spans[i].end);
          EXPECT_TRUE(spans[j].begin >= spans[i].begin || spans[j].end <= spans[i].begin);
        }
      }
    }
  }
}

TEST(Profile, RecordingAllocatesNothingAndChangesNothing) {
  Session s = session(2);
  add_next(s);
  Executable e = s.compile(graph());
  const Array x = Array::full(kF32, {kChunks}, 0.3);
  std::vector<Array> plain(1), recorded(1);
  e.run_into({&x, 1}, plain);
  Profile profile;
  RunOptions options;
  options.profile = &profile;
  e.run_into({&x, 1}, recorded, options);
  const int64_t before = allocation_count();
  e.run_into({&x, 1}, recorded, options);
  EXPECT_EQ(allocation_count(), before);
  EXPECT_TRUE(plain[0].same_bits(recorded[0]));
  expect_counts(profile);  // of the last run only
}

TEST(Profile, WhatDoesNotFitIsCounted) {
  Session s = session(1);
  add_next(s);
  Executable e = s.compile(graph());
  Profile profile(3);
  RunOptions options;
  options.profile = &profile;
  e.run({Array::zeros(kF32, {kChunks})}, options);
  EXPECT_EQ(profile.recorders()[0].spans().size(), 3U);
  EXPECT_GT(profile.dropped(), 0);
  expect_counts(profile);
  EXPECT_NE(profile.to_string().find("spans did not fit"), std::string::npos);
}

TEST(Profile, AFailedRunLeavesWhatItDid) {
  Session s = session(2);
  CustomKernel k;
  k.name = "next";
  k.run = [](const CustomRun&, int64_t) { throw std::runtime_error("broken"); };
  s.add_kernel(k);
  Executable e = s.compile(graph());
  Profile profile;
  EXPECT_TRUE(profile.empty());
  EXPECT_THROW(profile.rows(), Error);
  RunOptions options;
  options.profile = &profile;
  EXPECT_THROW(e.run({Array::zeros(kF32, {kChunks})}, options), Error);
  EXPECT_EQ(row(profile.rows(), "Custom", "first").runs, 1);
  EXPECT_EQ(row(profile.rows(), "Custom", "inside").runs, 0);
}

// --- NaN

std::string finite_error(const Graph& g, const std::vector<Array>& inputs) {
  for (const int threads : {5, 1}) {
    Session s = session(threads);
    CompileOptions compile;
    compile.fuse = false;  // else a region hides what happens inside
    Executable e = s.compile(g, compile);
    RunOptions options;
    options.check_finite = true;
    try {
      e.run(inputs, options);
    } catch (const Error& error) {
      if (threads == 1) return error.what();
      continue;
    }
    if (threads == 1) return "none";
  }
  return "";
}

TEST(CheckFinite, NamesTheStepAndWhatItWasGiven) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {2, 3});
  b.set_label("scores");
  const Value y = log(b, transpose(b, x, {1, 0}));
  b.set_label("after");
  g.add_output("y", exp(b, add(b, y, y)));
  Array a = Array::full(kF32, {2, 3}, 2);
  EXPECT_EQ(finite_error(g, {a}), "none");
  a.mutable_data<float>()[3] = -1;  // [1, 0], which the step sees at [0, 1]
  const std::string text = finite_error(g, {a});
  EXPECT_NE(text.find("Activation at scores: makes the first NaN, at [0, 1] of result 0"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("1 NaN"), std::string::npos) << text;
  EXPECT_NE(text.find("operand 0: f32[3, 2] from -1 to 2"), std::string::npos) << text;
}

// exp overflows to infinity; that NaN comes of infinities later is not news.
TEST(CheckFinite, FindsInfinities) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {3});
  b.set_label("exp");
  const Value y = exp(b, x);
  b.set_label("sub");
  g.add_output("y", sub(b, y, y));
  const std::string text = finite_error(g, {Array::full(kF32, {3}, 1000)});
  EXPECT_NE(text.find("exp: makes the first infinity, at [0]"), std::string::npos) << text;
}

TEST(CheckFinite, WhatComesInIsNotBlamed) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {3});
  g.add_output("y", exp(b, mul(b, x, 2)));
  EXPECT_EQ(finite_error(g, {Array::full(kF32, {3}, std::nan(""))}), "none");
  EXPECT_EQ(finite_error(g, {Array::full(kF32, {3}, std::numeric_limits<double>::infinity())}),
            "none");
}

// What lies beyond an extent is NaN in memory, and nobody's fault.
TEST(CheckFinite, LooksAtWhatARunUses) {
  Graph g;
  Builder b(g);
  const Dim n = Dim::symbol("n");
  const Value x = input(b, "x", kF32, {3, n});
  b.set_label("logarithm");
  const Value y = log(b, x);
  b.set_label("after");
  g.add_output("y", softmax(b, y));
  g.add_output("z", sum(b, mul(b, y, y), {1}));
  Session s = session(2);
  CompileOptions options;
  options.bounds = {{"n", 7}};
  options.fuse = false;
  options.guard_zones = true;
  Executable e = s.compile(g, options);
  RunOptions check;
  check.check_finite = true;
  for (const int64_t size : {7, 5, 0, 3}) {
    const Array a = Array::full(kF32, {3, size}, 2);
    EXPECT_TRUE(e.run({a}, check)[1].same_bits(e.run({a})[1]));
  }
  Array a = Array::full(kF32, {3, 5}, 2);
  a.mutable_data<float>()[9] = -1;
  const std::string text = error_of([&] { e.run({a}, check); });
  EXPECT_NE(
      text.find("Activation at logarithm: makes the first NaN, at [1, 4] of result 0 (f32[3, 5]"),
      std::string::npos)
      << text;
}

// log(c) for c = 3, 2, 1, 0 in place of the carry's copy.
TEST(CheckFinite, TellsTheTripOfALoop) {
  Graph inner("body");
  Builder ib(inner);
  input(ib, "index", DType::kI64, {});
  const Value carry = input(ib, "carry", kF32, {2});
  inner.add_output("next", sub(ib, carry, 1));
  ib.set_label("logarithm");
  inner.add_output("y", log(ib, carry));
  Graph g;
  Builder b(g);
  b.set_label("loop");
  ScanAttrs scan{
      .body = std::make_shared<const Graph>(std::move(inner)), .num_carries = 1, .length = 6};
  const auto results = b.call(kScanOp, Attrs::of(kScanOp.fields, scan), {input(b, "x", kF32, {2})});
  g.add_output("y", results[1]);
  const std::string text = finite_error(g, {Array::full(kF32, {2}, 3)});
  EXPECT_NE(text.find("Scan at loop, trip 3: Activation at logarithm: makes the first infinity"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace rlx
