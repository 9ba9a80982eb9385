// What is left of control flow after simplification, and what is left alone.
#include <gtest/gtest.h>

#include <cmath>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/compile/passes.h"
#include "rlx/ir/verify.h"
#include "rlx/ops/build.h"
#include "rlx/ops/control.h"
#include "rlx/ops/loops.h"
#include "rlx/ops/table.h"
#include "rlx/runtime/session.h"
#include "rlx/transform/grad.h"

namespace rlx {

RLX_USE_OP(If);
RLX_USE_OP(While);
RLX_USE_OP(Scan);

namespace {

using Values = std::vector<Value>;
constexpr DType kF32 = DType::kF32;

Graph simplified(const Graph& g) {
  Graph out = drop_dead(simplify_control(merge_common(g)));
  verify(out, "simplify_control");
  return out;
}

std::vector<const Node*> nodes(const Graph& g, const OpDef& op) {
  std::vector<const Node*> list;
  for (const Node& n : g.nodes()) {
    if (n.op == &op) list.push_back(&n);
  }
  return list;
}

ScanAttrs only_scan(const Graph& g) {
  const auto list = nodes(g, kScanOp);
  if (list.size() != 1) throw std::runtime_error("not one Scan");
  return list[0]->attrs.as<ScanAttrs>();
}

struct Fixture {
  Graph g;
  Builder b{g};
  Value c = input(b, "c", kF32, {3}), w = input(b, "w", kF32, {3}), x = input(b, "x", kF32, {5, 3});

  // The same outputs, bit by bit, with and without optimization.
  void expect_same_results() const {
    std::vector<Array> in;
    for (Value v : g.inputs()) {
      Array a = Array::uninitialized(kF32, g.type(v).shape.static_dims());
      float k = float(in.size());
      for (float& f : a.mutable_data<float>()) f = std::sin(k++);
      in.push_back(std::move(a));
    }
    Session s(cpu_device());
    CompileOptions plain;
    plain.optimize = false;
    const auto fast = s.compile(g).run(in), slow = s.compile(g, plain).run(in);
    for (size_t i = 0; i < fast.size(); ++i) {
      EXPECT_TRUE(fast[i].same_bits(slow[i])) << g.outputs()[i].name;
    }
  }
};

TEST(SimplifyControl, DropsWhatNoResultNeeds) {
  Fixture f;
  // Carry 0 feeds itself only; carry 1 is wanted and needs carry 2.
  const Values r = scan(f.b, {f.c, f.c, f.w}, {f.x}, 5, [&](Body& s, Value, auto c, auto x) {
    const Value unused = exp(s, s.capture(f.w));
    return ScanStep{{add(s, c[0], unused), add(s, c[1], c[2]), add(s, c[2], x[0])}, {c[0], c[1]}};
  });
  f.g.add_output("y", r[1]);
  const ScanAttrs a = only_scan(simplified(f.g));
  EXPECT_EQ(a.num_carries, 2);
  EXPECT_EQ(a.num_captures, 0);
  EXPECT_EQ(a.body->outputs().size(), 2u);
  EXPECT_EQ(nodes(*a.body, *find_op("Activation")).size(), 0u);
  f.expect_same_results();
}

TEST(SimplifyControl, CapturesWhatNeverChangesAndMergesEqualParts) {
  Fixture f;
  const Value same = expand(f.b, f.w, {5, 3});
  const Values r =
      scan(f.b, {f.c, f.w}, {f.x, f.x, same}, 5, [&](Body& s, Value index, auto c, auto x) {
        const Value next = add(s, c[0], mul(s, add(s, x[0], x[1]), add(s, c[1], x[2])));
        return ScanStep{{next, c[1]}, {next, next, c[1], x[1], index}};
      });
  for (size_t i = 0; i < r.size(); ++i) f.g.add_output(fmt::format("r{}", i), r[i]);
  const Graph out = simplified(f.g);
  const ScanAttrs a = only_scan(out);
  EXPECT_EQ(a.num_carries, 1);
  EXPECT_EQ(a.num_captures, 1);             // w, once
  EXPECT_EQ(a.body->inputs().size(), 4u);   // index, carry, w, x
  EXPECT_EQ(a.body->outputs().size(), 2u);  // the carry and one y
  EXPECT_EQ(out.outputs()[1].value, f.w);   // the carry that never changes
  EXPECT_EQ(out.outputs()[2].value, out.outputs()[3].value);
  EXPECT_EQ(out.outputs()[5].value, f.x);
  EXPECT_EQ(nodes(out, *find_op("Iota")).size(), 1u);
  f.expect_same_results();
}

TEST(SimplifyControl, SmallConstantsMoveInside) {
  Fixture f;
  const Value small = constant(f.b, Array::full(kF32, {3}, 2));
  const Value large = constant(f.b, Array::full(kF32, {1000, 3}, 2));
  const Values r = scan(f.b, {f.c}, {}, 5, [&](Body& s, Value, auto c, auto) {
    const Value product = mul(s, c[0], s.capture(small));
    return ScanStep{{add(s, product, sum(s, s.capture(large), {0}))}, {}};
  });
  f.g.add_output("y", r[0]);
  EXPECT_EQ(only_scan(simplified(f.g)).num_captures, 1);
  f.expect_same_results();
}

TEST(SimplifyControl, ShortScansAreNoLoops) {
  for (const int64_t length : {0, 1, 2}) {
    Fixture f;
    const Value x = narrow(f.b, f.x, 0, 1, length);
    const Values r = scan(f.b, {f.c}, {x}, length, [&](Body& s, Value i, auto c, auto xs) {
      const Value next = add(s, c[0], mul(s, xs[0], cast(s, i, kF32)));
      return ScanStep{{next}, {mul(s, next, c[0])}};
    });
    f.g.add_output("c", r[0]);
    f.g.add_output("y", r[1]);
    EXPECT_EQ(nodes(simplified(f.g), kScanOp).size(), length == 2 ? 1u : 0u);
    f.expect_same_results();
  }
}

TEST(SimplifyControl, KnownPredicatesAndUnusedResultsOfIf) {
  Fixture f;
  const auto branches = [&](Value predicate) {
    return if_else(
        f.b, predicate,
        [&](Body& s) {
          return Values{exp(s, s.capture(f.c)), s.capture(f.w), s.capture(f.c)};
        },
        [&](Body& s) {
          return Values{neg(s, s.capture(f.c)), s.capture(f.w), s.capture(f.w)};
        });
  };
  const Value unknown = less(f.b, squeeze(f.b, narrow(f.b, f.c, 0, 0, 1), 0), scalar(f.b, kF32, 0));
  const Values known = branches(constant(f.b, Array::scalar(false)));
  const Values open = branches(unknown);
  f.g.add_output("known", known[0]);
  f.g.add_output("open", open[0]);
  f.g.add_output("passed", open[1]);
  const Graph out = simplified(f.g);
  const auto left = nodes(out, kIfOp);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0]->operands.size(), 2u);  // the predicate and c
  EXPECT_EQ(left[0]->results.size(), 1u);
  EXPECT_EQ(out.outputs()[2].value, f.w);
  f.expect_same_results();
}

TEST(SimplifyControl, LoopsKeepWhatTheConditionNeeds) {
  Fixture f;
  const Values r = while_loop(
      f.b, {f.c, f.w, scalar(f.b, DType::kI64, 0), f.w},
      [](Body& s, auto c) { return less(s, c[2], scalar(s, DType::kI64, 4)); },
      [](Body& s, auto c) {
        return Values{mul(s, c[0], c[3]), exp(s, c[1]), add(s, c[2], 1), c[3]};
      });
  f.g.add_output("y", r[0]);
  f.g.add_output("same", r[3]);
  const Graph out = simplified(f.g);
  const auto left = nodes(out, kWhileOp);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0]->attrs.as<WhileAttrs>().num_carries, 2);  // c and the counter
  EXPECT_EQ(left[0]->operands.size(), 3u);
  EXPECT_EQ(out.outputs()[1].value, f.w);
  f.expect_same_results();
}

TEST(SimplifyControl, TheForwardLoopAndTheOneThatKeepsCarriesAreOne) {
  Fixture f;
  const Values r = scan(f.b, {f.c}, {f.x}, 5, [&](Body& s, Value, auto c, auto x) {
    return ScanStep{{tanh(s, add(s, mul(s, c[0], s.capture(f.w)), x[0]))}, {}};
  });
  f.g.add_output("loss", sum(f.b, r[0], {0}));
  const Graph gradient = canonicalize(grad(f.g, "loss", {"w"}));
  EXPECT_EQ(nodes(gradient, kScanOp).size(), 3u);
  const Graph out = simplified(gradient);
  const auto left = nodes(out, kScanOp);
  ASSERT_EQ(left.size(), 2u);
  // Only w was asked for: the sweep carries the cotangents of c and w and stacks none of x.
  EXPECT_EQ(left[1]->attrs.as<ScanAttrs>().num_carries, 2);
  EXPECT_EQ(left[1]->results.size(), 2u);
}

TEST(SimplifyControl, InNestedBodiesToo) {
  Fixture f;
  const Values r = scan(f.b, {f.c}, {f.x}, 5, [&](Body& outer, Value, auto c, auto x) {
    const Value w = outer.capture(f.w);
    const Values in = scan(outer, {c[0], w}, {}, 3, [&](Body& s, Value, auto d, auto) {
      return ScanStep{{add(s, d[0], s.capture(x[0])), exp(s, d[1])}, {d[1]}};
    });
    return ScanStep{{in[0]}, {}};
  });
  f.g.add_output("y", r[0]);
  const ScanAttrs outer = only_scan(simplified(f.g));
  EXPECT_EQ(outer.num_captures, 0);  // w was for the inner loop's dead carry
  const ScanAttrs inner = only_scan(*outer.body);
  EXPECT_EQ(inner.num_carries, 1);
  EXPECT_EQ(inner.body->outputs().size(), 1u);
  f.expect_same_results();
}

}  // namespace
}  // namespace rlx
