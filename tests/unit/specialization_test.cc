// Plans for the sizes that come, how many are kept, and the memory a session may take.
#include <gtest/gtest.h>

#include "rlx/ops/build.h"
#include "rlx/runtime/session.h"
#include "tests/unit/fake_device.h"
#include "tests/unit/test_util.h"

namespace rlx {
namespace {

constexpr DType kF32 = DType::kF32;

Graph symbolic() {
  Graph g("symbolic");
  Builder b(g);
  const Dim n = Dim::symbol("n"), m = Dim::symbol("m");
  const Value x = input(b, "x", kF32, {n, 2 * n + 1});
  const Value y = input(b, "y", kF32, {m, n});
  g.add_output("z", matmul(b, y, x));
  return g;
}

TEST(Specialization, CompilesOncePerSizes) {
  Session session(fake::device(), threads(1));
  Executable e = session.compile(symbolic());
  EXPECT_EQ(e.compiles(), 0);
  EXPECT_THROW(e.plan(), Error);
  const auto run = [&](Executable& ex, int64_t n, int64_t m) {
    return ex.run({numbers({n, 2 * n + 1}), numbers({m, n})})[0].shape();
  };
  EXPECT_EQ(run(e, 2, 3), (Dims{3, 5}));
  EXPECT_EQ(run(e, 2, 3), (Dims{3, 5}));
  EXPECT_EQ(e.compiles(), 1);
  EXPECT_EQ(e.cache_hits(), 0);
  EXPECT_EQ(run(e, 1, 4), (Dims{4, 3}));
  EXPECT_EQ(run(e, 2, 3), (Dims{3, 5}));
  EXPECT_EQ(e.compiles(), 2);
  EXPECT_EQ(e.cache_hits(), 1);
  Executable other = e.clone();
  EXPECT_EQ(run(other, 1, 4), (Dims{4, 3}));
  EXPECT_EQ(run(other, 0, 4), (Dims{4, 1}));
  EXPECT_EQ(e.compiles(), 3);
  EXPECT_EQ(session.cached_plans(), 3u);
}

TEST(Specialization, WrongSizesAreNamed) {
  Session session(fake::device(), threads(1));
  Executable e = session.compile(symbolic());
  EXPECT_EQ(thrown_by([&] {
              e.run({numbers({2, 6}), numbers({3, 2})});
            }).message(),
            "input 'x' of 'symbolic': expected f32[n, 1 + 2*n] with n = 2, got f32[2, 6]");
  EXPECT_EQ(thrown_by([&] {
              e.run({numbers({2, 5}), numbers({3, 4})});
            }).message(),
            "input 'y' of 'symbolic': expected f32[m, n] with m = 3, n = 2, got f32[3, 4]");
  EXPECT_EQ(thrown_by([&] {
              e.run({numbers({2}), numbers({3, 4})});
            }).message(),
            "input 'x' of 'symbolic': expected f32[n, 1 + 2*n], got f32[2]");
  EXPECT_EQ(e.compiles(), 0);
}

TEST(Specialization, SizesAreSolvedFromExpressions) {
  Graph g("expressions");
  Builder b(g);
  const Dim n = Dim::symbol("n"), m = Dim::symbol("m");
  g.add_output("y", neg(b, input(b, "x", kF32, {m + 3 * n, 4 * n + 2})));
  Session session(fake::device(), threads(1));
  Executable e = session.compile(g);
  e.run({numbers({7, 10})});  // n = 2, m = 1
  EXPECT_EQ(thrown_by([&] {
              e.run({numbers({7, 11})});
            }).message(),
            "input 'x' of 'expressions': expected f32[" + (m + 3 * n).to_string() +
                ", 2 + 4*n], got f32[7, 11]");
  EXPECT_THROW(e.run({numbers({5, 10})}), Error);  // m would be -1
  Graph h("open");
  Builder c(h);
  h.add_output("y", neg(c, input(c, "x", kF32, {m + n})));
  EXPECT_EQ(thrown_by([&] { session.compile(h).run({numbers({3})}); }).message(),
            "the shapes of the inputs of 'open' do not determine the size 'm'");
}

TEST(Specialization, TheCacheIsBoundedByEntries) {
  SessionOptions options = threads(1);
  options.plan_cache_entries = 2;
  Session session(fake::device(), options);
  Graph g;
  Builder b(g);
  g.add_output("y", neg(b, input(b, "x", kF32, {Dim::symbol("n")})));
  std::weak_ptr<const Plan> oldest;
  {
    Executable e = session.compile(g);
    for (const int64_t n : {1, 2, 3, 3, 2, 1}) e.run({numbers({n})});
    EXPECT_EQ(e.compiles(), 4);  // 1 was dropped when 3 came
    EXPECT_EQ(e.cache_hits(), 1);
    EXPECT_EQ(session.cached_plans(), 2u);
    EXPECT_GT(session.cached_plan_bytes(), 0);
  }
  EXPECT_EQ(session.cached_plans(), 0u);
  EXPECT_EQ(session.cached_plan_bytes(), 0);
}

TEST(Specialization, TheCacheIsBoundedByBytes) {
  SessionOptions options = threads(1);
  options.plan_cache_bytes = 1;  // no plan is that small
  Session session(fake::device(), options);
  Graph g;
  Builder b(g);
  g.add_output("y", neg(b, input(b, "x", kF32, {Dim::symbol("n")})));
  Executable e = session.compile(g);
  for (const int64_t n : {1, 1, 2, 1}) EXPECT_EQ(e.run({numbers({n})})[0].at(0), -1);
  EXPECT_EQ(session.cached_plans(), 0u);
  EXPECT_EQ(e.compiles(), 3);  // the plan in use stays in use
}

TEST(Limits, TheSessionsMemoryLimitFailsCleanly) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {Dim::symbol("n")});
  const Value w = param(b, "w", kF32, {});
  g.add_output("y", neg(b, neg(b, add(b, x, w))));
  SessionOptions options = threads(1);
  options.memory_limit = 10000;
  CompileOptions keep;
  keep.optimize = false;
  Session session(fake::device(), options);
  session.weights().set("w", numbers({}));
  EXPECT_EQ(session.memory_in_use(), 4);
  EXPECT_EQ(thrown_by([&] { session.weights().set("v", numbers({3000})); }).kind(),
            ErrorKind::kDevice);
  EXPECT_FALSE(session.weights().has("v"));
  {
    Executable e = session.compile(g, keep);
    e.run({numbers({1000})});
    EXPECT_GE(session.memory_in_use(), 4000);
    const Error error = thrown_by([&] { e.run({numbers({100000})}); });
    EXPECT_EQ(error.kind(), ErrorKind::kDevice);
    EXPECT_NE(error.message().find("the session's limit is 10000 bytes"), std::string::npos)
        << error.message();
    EXPECT_EQ(e.run({numbers({1000})})[0].at(0), 2);
  }
  EXPECT_EQ(session.memory_in_use(), 4);
  session.weights().erase("w");
  EXPECT_EQ(session.memory_in_use(), 0);
}

}  // namespace
}  // namespace rlx
