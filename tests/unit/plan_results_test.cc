// What plans compute: updates of params in their own memory, and random graphs planned as a whole
// against one call at a time.
#include <gtest/gtest.h>

#include <random>

#include "rlx/ops/build.h"
#include "rlx/ops/layer_norm.h"
#include "rlx/runtime/eval.h"
#include "tests/unit/plan_check.h"

namespace rlx {
namespace {

using namespace plan_check;
constexpr DType kF32 = DType::kF32;

TEST(Plan, UpdatesAreComputedInTheParamsMemory) {
  Graph g("sgd");
  Builder b(g);
  const Value x = input(b, "x", kF32, {4});
  const Value w = param(b, "w", kF32, {4}, true);
  g.add_update("w", sub(b, w, x));  // first in the graph, but reads of w come later
  g.add_output("y", neg(b, mul(b, w, x)));
  const auto plan = plan_of(g);
  EXPECT_EQ(to_string(*plan), R"(plan sgd
  input x f32[4]
  param w f32[4] updated
  output y f32[4]
  arena 64 bytes, 64 alive at most
  serial
    0: arena+0 f32[4] = binary(w f32[4], x f32[4])
    1: y f32[4] = neg(arena+0 f32[4])
  barrier
  serial writes params
    2: w f32[4] = binary(w f32[4], x f32[4])
)");
  const Outcome out = run_all_ways(g, {numbers({4})}, {{"w", numbers({4}, 10)}});
  EXPECT_EQ(values(out.outputs[0]), (std::vector<float>{-10, -22, -36, -52}));
  EXPECT_EQ(values(out.weights.at("w")), (std::vector<float>{9, 9, 9, 9}));
}

TEST(Plan, UpdatesThatNeedTheOldValueAreCopiedAtTheEnd) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {2, 2});
  const Value w = param(b, "w", kF32, {2, 2}, true);
  const Value next = add(b, w, x);
  g.add_output("y", mul(b, next, w));  // needs both values
  g.add_update("w", next);
  const auto plan = plan_of(g);
  EXPECT_EQ(plan->counts.direct_updates, 0) << to_string(*plan);
  const Outcome out = run_all_ways(g, {numbers({2, 2})}, {{"w", numbers({2, 2}, 10)}});
  EXPECT_EQ(values(out.outputs[0]), (std::vector<float>{110, 143, 180, 221}));
  EXPECT_EQ(values(out.weights.at("w")), (std::vector<float>{11, 13, 15, 17}));
}

TEST(Plan, ParamsCanBeSwappedTransposedAndKept) {
  Graph g;
  Builder b(g);
  const Value p = param(b, "p", kF32, {2, 2}, true);
  const Value q = param(b, "q", kF32, {2, 2}, true);
  const Value r = param(b, "r", kF32, {2, 2}, true);
  const Value s = param(b, "s", kF32, {2, 2}, true);
  param(b, "t", kF32, {2, 2}, true);
  g.add_update("p", q);
  g.add_update("q", p);
  g.add_update("r", transpose(b, r, {1, 0}));
  g.add_update("s", s);
  g.add_update("t", input(b, "x", kF32, {2, 2}));
  EXPECT_FALSE(plan_of(g)->params[3].updated);
  const Outcome out = run_all_ways(g, {numbers({2, 2}, 50)},
                                   {{"p", numbers({2, 2}, 10)},
                                    {"q", numbers({2, 2}, 20)},
                                    {"r", numbers({2, 2}, 30)},
                                    {"s", numbers({2, 2}, 40)},
                                    {"t", numbers({2, 2}, 0)}});
  EXPECT_EQ(values(out.weights.at("p")), (std::vector<float>{20, 21, 22, 23}));
  EXPECT_EQ(values(out.weights.at("q")), (std::vector<float>{10, 11, 12, 13}));
  EXPECT_EQ(values(out.weights.at("r")), (std::vector<float>{30, 32, 31, 33}));
  EXPECT_EQ(values(out.weights.at("s")), (std::vector<float>{40, 41, 42, 43}));
  EXPECT_EQ(values(out.weights.at("t")), (std::vector<float>{50, 51, 52, 53}));
}

TEST(Plan, CrossedUpdatesDoNotBothWriteDirectly) {
  Graph g;
  Builder b(g);
  const Value p = param(b, "p", kF32, {3}, true);
  const Value q = param(b, "q", kF32, {3}, true);
  g.add_update("p", add(b, p, q));
  g.add_update("q", sub(b, p, q));
  EXPECT_EQ(plan_of(g)->counts.direct_updates, 1);
  const Outcome out = run_all_ways(g, {}, {{"p", numbers({3}, 10)}, {"q", numbers({3}, 1)}});
  EXPECT_EQ(values(out.weights.at("p")), (std::vector<float>{11, 13, 15}));
  EXPECT_EQ(values(out.weights.at("q")), (std::vector<float>{9, 9, 9}));
}

// --- Random graphs: planned as a whole against one call at a time.

struct RandomGraph {
  Graph graph;
  std::vector<Array> inputs;
  std::map<std::string, Array> weights;
};

RandomGraph random_graph(uint32_t seed) {
  std::mt19937 rng(seed);
  const auto below = [&](size_t n) { return size_t(rng() % n); };
  RandomGraph r;
  Builder b(r.graph);
  const int64_t n = std::vector<int64_t>{1, 3, 8, 40}[below(4)];
  std::vector<Value> pool;
  for (int i = 0; i < 2; ++i) {
    pool.push_back(input(b, fmt::format("x{}", i), kF32, {n, n}));
    r.inputs.push_back(numbers({n, n}, float(i) - 2));
    pool.push_back(param(b, fmt::format("w{}", i), kF32, {n, n}, true));
    r.weights.emplace(fmt::format("w{}", i), numbers({n, n}, float(i) + 3));
  }
  const auto any = [&] { return pool[below(pool.size())]; };
  const size_t size = 4 + below(24);
  for (size_t i = 0; i < size; ++i) {
    switch (below(9)) {
      case 0:
        pool.push_back(add(b, any(), any()));
        break;
      case 1:
        pool.push_back(sub(b, any(), any()));
        break;
      case 2:
        pool.push_back(neg(b, any()));
        break;
      case 3:
        pool.push_back(transpose(b, any(), {1, 0}));
        break;
      case 4:
        pool.push_back(mul(b, expand(b, narrow(b, any(), 0, n / 2, 1), {n, n}), 0.5));
        break;
      case 5: {
        const Value v = any();
        const std::vector<Value> parts{narrow(b, any(), 1, 0, n / 2), add(b, v, v)};
        pool.push_back(narrow(b, concat(b, parts, 1), 1, 0, n));
        break;
      }
      case 6:
        pool.push_back(activation(b, ActivationKind::kAbs, any()));
        break;
      case 7:
        pool.push_back(mul(b, matmul(b, any(), any()), 1.0 / 64));
        break;
      case 8:  // bounded, through shared scratch
        pool.push_back(
            activation(b, ActivationKind::kExp,
                       neg(b, activation(b, ActivationKind::kAbs, reshape(b, any(), {n * n})))));
        pool.back() = reshape(b, pool.back(), {n, n});
        break;
    }
  }
  for (size_t i = 0; i < 1 + below(3); ++i) r.graph.add_output(fmt::format("y{}", i), any());
  if (below(2)) r.graph.add_update("w0", any());
  if (below(2)) r.graph.add_update("w1", any());
  return r;
}

// Every node by a plan of its own.
Outcome one_by_one(const RandomGraph& r) {
  std::vector<Array> value(r.graph.size());
  size_t next_input = 0;
  for (uint32_t id = 0; id < r.graph.size(); ++id) {
    const Node& n = r.graph.node(id);
    if (n.op->name == "Input") {
      value[id] = r.inputs[next_input++];
    } else if (n.op->name == "Param") {
      value[id] = r.weights.at(r.graph.name_of({id, 0}));
    } else if (n.op->name == "Constant") {
      value[id] = std::get<Array>(n.attrs.field("value"));
    } else {
      std::vector<Array> operands;
      for (const Value v : n.operands) operands.push_back(value[v.node]);
      value[id] = eval(fake::device(), *n.op, n.attrs, operands)[0];
    }
  }
  Outcome out;
  for (const Output& o : r.graph.outputs()) out.outputs.push_back(value[o.value.node]);
  out.weights = r.weights;
  for (const Update& u : r.graph.updates()) out.weights[u.param] = value[u.value.node];
  return out;
}

TEST(Plan, RandomGraphsEqualTheirCallsOneByOne) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const RandomGraph r = random_graph(seed);
    expect_ordered(*plan_of(r.graph));
    const Outcome expected = one_by_one(r);
    const Outcome out = run_all_ways(r.graph, r.inputs, r.weights);
    for (size_t i = 0; i < out.outputs.size(); ++i) {
      EXPECT_TRUE(out.outputs[i].same_bits(expected.outputs[i])) << to_string(*plan_of(r.graph));
    }
    for (const auto& [name, array] : expected.weights) {
      EXPECT_TRUE(out.weights.at(name).same_bits(array)) << name << to_string(*plan_of(r.graph));
    }
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace rlx
