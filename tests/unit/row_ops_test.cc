// Ops over rows of caches, tables and sorted lines: what only a run shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/error.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/build.h"
#include "rlx/ops/dim_size.h"
#include "rlx/ops/dynamic_slice.h"
#include "rlx/ops/kv_append.h"
#include "rlx/ops/rope.h"
#include "rlx/ops/sort.h"
#include "rlx/runtime/eval.h"
#include "rlx/runtime/session.h"
#include "tests/unit/test_util.h"
#include "tests/unit/timing.h"

namespace rlx {
namespace {

constexpr DType kF32 = DType::kF32;
constexpr DType kI64 = DType::kI64;

std::vector<float> values_of(const Array& a) {
  const auto data = a.data<float>();
  return {data.begin(), data.end()};
}

Array counting(Dims shape, float first = 1) {
  Array a = Array::uninitialized(kF32, std::move(shape));
  const auto data = a.mutable_data<float>();
  std::iota(data.begin(), data.end(), first);
  return a;
}

// Runs a graph of the inputs once.
template <class Build>
std::vector<Array> run(const std::vector<Array>& inputs, Build build) {
  Graph g("g");
  Builder b(g);
  std::vector<Value> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    values.push_back(input(b, "x" + std::to_string(i), inputs[i].dtype(), inputs[i].type().shape));
  }
  const std::vector<Value> results = build(b, values);
  for (size_t i = 0; i < results.size(); ++i) g.add_output("y" + std::to_string(i), results[i]);
  Session session(cpu_device());
  return session.compile(g).run(inputs);
}

// --- Caches that stay with the session

// y = cache after the rows were appended at pos, and the cache takes it over.
Graph cache_graph(const Dims& cache, const Dims& rows, const Dims& pos, bool reads_old = false) {
  Graph g("cache");
  Builder b(g);
  const auto shape = [](const Dims& d) { return Shape(std::span<const int64_t>(d)); };
  const Value old = param(b, "cache", kF32, shape(cache), /*is_mutable=*/true);
  const Value added = input(b, "rows", kF32, shape(rows));
  const Value y = kv_append(b, old, added, input(b, "pos", kI64, shape(pos)));
  g.add_update("cache", y);
  g.add_output("first", narrow(b, y, 1, 0, 1));
  if (reads_old) g.add_output("old", sum(b, old, {1, 2}));
  return g;
}

TEST(KvAppend, WritesAResidentCacheInPlace) {
  Session session(cpu_device());
  session.weights().set({{"cache", Array::zeros(kF32, {2, 5, 3})}});
  Executable e = session.compile(cache_graph({2, 5, 3}, {2, 1, 3}, {2}));
  EXPECT_EQ(e.report().counts.direct_updates, 1);
  int64_t large_copies = 0;  // the output's one row is copied
  for (const PlanStep& s : e.plan().steps) large_copies += s.inserted && s.bytes > 2 * 2 * 3 * 4;
  EXPECT_EQ(large_copies, 0);

  e.run({counting({2, 1, 3}), Array::from<int64_t>({4, 0}, {2})});
  e.run({counting({2, 1, 3}, 10), Array::from<int64_t>({1, 2}, {2})});
  EXPECT_EQ(values_of(session.weights().get("cache")),
            (std::vector<float>{0, 0, 0, 10, 11, 12, 0,  0,  0,  0, 0, 0, 1, 2, 3,  //
                                4, 5, 6, 0,  0,  0,  13, 14, 15, 0, 0, 0, 0, 0, 0}));
}

TEST(KvAppend, ReadersOfTheOldCacheComeFirst) {
  Session session(cpu_device());
  session.weights().set({{"cache", Array::zeros(kF32, {1, 4, 2})}});
  Executable e = session.compile(cache_graph({1, 4, 2}, {1, 1, 2}, {}, /*reads_old=*/true));
  EXPECT_EQ(e.report().counts.direct_updates, 1);
  e.run({counting({1, 1, 2}), Array::scalar(int64_t(3))});
  const std::vector<Array> second = e.run({counting({1, 1, 2}), Array::scalar(int64_t(0))});
  EXPECT_EQ(values_of(second[1]), (std::vector<float>{3}));
}

TEST(KvAppend, PastTheCapacityIsAnErrorAndChangesNothing) {
  Session session(cpu_device());
  session.weights().set({{"cache", counting({2, 5, 3})}});
  Executable e = session.compile(cache_graph({2, 5, 3}, {2, 2, 3}, {2}));
  for (const int64_t pos : {int64_t(4), int64_t(-1), INT64_MAX, INT64_MIN}) {
    const std::string error = error_of([&] {
      e.run({counting({2, 2, 3}, 100), Array::from<int64_t>({0, pos}, {2})});
    });
    const std::string expected =
        "2 rows at position " + std::to_string(pos) + " do not fit into a cache of capacity 5";
    EXPECT_NE(error.find(expected), std::string::npos) << error;
  }
  EXPECT_EQ(values_of(session.weights().get("cache")), values_of(counting({2, 5, 3})));
}

double seconds_per_append(int64_t capacity) {
  Session session(cpu_device());
  session.weights().set({{"cache", Array::zeros(kF32, {1, capacity, 64})}});
  Executable e = session.compile(cache_graph({1, capacity, 64}, {1, 1, 64}, {}));
  const std::vector<Array> inputs{counting({1, 1, 64}), Array::scalar(int64_t(3))};
  return fastest_of(50, [&] { e.run(inputs); });
}

TEST(KvAppend, TimeDoesNotGrowWithTheCapacity) {
  const double small = seconds_per_append(1 << 10), large = seconds_per_append(1 << 17);
  // Copying the large cache, 32 MiB, would take milliseconds.
  EXPECT_LT(large, small + 500e-6);
}

// --- Windows

TEST(DynamicSlice, WindowsOutsideAreErrors) {
  const Array x = counting({4, 5});
  const auto slice = [&](int64_t i, int64_t j) {
    return run({x, Array::from<int64_t>({i, j}, {2})}, [](Builder& b, const auto& v) {
      return std::vector{dynamic_slice(b, v[0], v[1], {.sizes = {2, 3}})};
    });
  };
  EXPECT_EQ(values_of(slice(2, 2)[0]), (std::vector<float>{13, 14, 15, 18, 19, 20}));
  EXPECT_NE(error_of([&] { slice(3, 0); }).find("a window of size 2 at 3 is not within axis 0"),
            std::string::npos);
  EXPECT_NE(error_of([&] { slice(0, -1); }).find("a window of size 3 at -1 is not within axis 1"),
            std::string::npos);
}

TEST(DynamicUpdateSlice, TakesOverADyingTarget) {
  Graph g("g");
  Builder b(g);
  const Value x = input(b, "x", kF32, {64, 8});
  const Value at = input(b, "at", kI64, {});
  const Value row = input(b, "row", kF32, {1, 8});
  const Value y = dynamic_update_slice(b, exp(b, x), row, at, {.axes = {0}});
  g.add_output("y", relu(b, dynamic_update_slice(b, y, row, at, {.axes = {0}})));
  Session session(cpu_device());
  Executable e = session.compile(g);
  EXPECT_GE(e.report().counts.in_place, 2);
  const auto y_of = [&](int64_t i) {
    return e.run({Array::zeros(kF32, {64, 8}), Array::scalar(i), counting({1, 8})})[0];
  };
  EXPECT_EQ(y_of(63).data<float>()[63 * 8 + 7], 8);
  EXPECT_EQ(y_of(63).data<float>()[62 * 8 + 7], 1);
  EXPECT_NE(error_of([&] { y_of(64); }).find("a window of size 1 at 64"), std::string::npos);
}

// --- Positions

TEST(Rope, PositionsOutsideTheTablesAreErrors) {
  const Array x = counting({1, 2, 1, 4}), cos = counting({3, 2}), sin = counting({3, 2});
  const auto turn = [&](const Array& positions) {
    return run({x, cos, sin, positions}, [](Builder& b, const auto& v) {
      return std::vector{rope(b, v[0], v[1], v[2], RopeAttrs{}, v[3])};
    });
  };
  const Array given = turn(Array::from<int64_t>({1, 2}, {2}))[0];
  EXPECT_EQ(values_of(turn(Array::scalar(int64_t(1)))[0]), values_of(given));
  EXPECT_EQ(values_of(turn(Array::from<int64_t>({-2, -1}, {2}))[0]), values_of(given));
  const auto expect_error = [&](Array positions, const std::string& text) {
    const std::string error = error_of([&] { turn(positions); });
    EXPECT_NE(error.find(text + " is out of range for tables of 3 rows"), std::string::npos)
        << error;
  };
  expect_error(Array::from<int64_t>({0, 3}, {2}), "position 3");
  expect_error(Array::from<int64_t>({-4, 0}, {2}), "position -4");
  expect_error(Array::scalar(int64_t(2)), "position 3");
  expect_error(Array::scalar(INT64_MAX), "position 9223372036854775807");
  expect_error(Array::from<uint64_t>({0, UINT64_MAX}, {2}), "position 9223372036854775807");
}

// --- Symbolic sizes

TEST(DimSize, BecomesAConstantWhenTheSizeIsBound) {
  Graph g("g");
  Builder b(g);
  const Value x = input(b, "x", kF32, {Dim::symbol("n"), 3});
  g.add_output("n", dim_size(b, exp(b, x), -2));
  Session session(cpu_device());
  Executable e = session.compile(g);
  EXPECT_EQ(e.run({counting({7, 3})})[0].data<int64_t>()[0], 7);
  EXPECT_EQ(e.run({counting({0, 3})})[0].data<int64_t>()[0], 0);
  for (const PlanStep& s : e.plan().steps) EXPECT_EQ(s.op->name, "Copy");  // x is not computed
}

// --- Order

TEST(TopK, AgreesWithSortOnLongLines) {
  // Rising lines beat the threshold with every element, falling ones never; noise in between.
  Array x = Array::uninitialized(kF32, {3, 10000});
  const auto data = x.mutable_data<float>();
  for (size_t i = 0; i < 10000; ++i) {
    data[i] = float(i);
    data[10000 + i] = -float(i);
    data[20000 + i] = float((i * 7919) % 997);  // with ties
  }
  for (const bool largest : {true, false}) {
    const std::vector<Array> y = run({x}, [&](Builder& b, const auto& v) {
      auto best = top_k(b, v[0], {.k = 100, .largest = largest});
      for (Value all : sort(b, v[0], {.descending = largest})) {
        best.push_back(narrow(b, all, 1, 0, 100));
      }
      return best;
    });
    EXPECT_EQ(values_of(y[0]), values_of(y[2]));
    EXPECT_TRUE(std::ranges::equal(y[1].data<int64_t>(), y[3].data<int64_t>()));
  }
}

}  // namespace
}  // namespace rlx
