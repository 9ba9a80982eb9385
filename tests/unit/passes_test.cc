// The graph passes: what each rewrites and, as important, what it leaves alone.
#include "rlx/compile/passes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/error.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/leaf.h"
#include "rlx/ir/verify.h"
#include "rlx/ops/activation.h"
#include "rlx/ops/binary.h"
#include "rlx/ops/build.h"
#include "rlx/ops/table.h"
#include "rlx/runtime/eval.h"

namespace rlx {
namespace {

struct Fixture {
  Graph g;
  Builder b{g};
  Value x = input(b, "x", DType::kF32, {4});
  Graph canonical() const {
    Graph out = drop_dead(canonicalize(g));
    verify(out, "canonicalize");
    return out;
  }
};

int count(const Graph& g, std::string_view kind) {
  int n = 0;
  for (const Node& node : g.nodes()) n += node.op->name == kind;
  return n;
}

TEST(Canonicalize, RemovesExactIdentities) {
  Fixture f;
  f.g.add_output("a", mul(f.b, f.x, 1));
  f.g.add_output("b", div(f.b, f.x, 1));
  f.g.add_output("c", sub(f.b, f.x, 0));
  f.g.add_output("d", add(f.b, f.x, -0.0));
  f.g.add_output("e", neg(f.b, neg(f.b, f.x)));
  f.g.add_output("f", stop_gradient(f.b, f.x));
  f.g.add_output("g", reshape(f.b, reshape(f.b, f.x, {2, 2}), {4}));
  const Graph out = f.canonical();
  EXPECT_EQ(out.size(), 1u);
  for (const Output& o : out.outputs()) EXPECT_EQ(o.value, out.inputs()[0]) << o.name;
}

TEST(Canonicalize, KeepsWhatChangesBits) {
  Fixture f;
  f.g.add_output("plus_zero", add(f.b, f.x, 0));  // turns -0 into +0
  f.g.add_output("minus_minus_zero", sub(f.b, f.x, -0.0));
  f.g.add_output("times_zero", mul(f.b, f.x, 0));      // NaN, infinity, -0
  f.g.add_output("minus_itself", sub(f.b, f.x, f.x));  // NaN, infinity
  f.g.add_output("by_itself", div(f.b, f.x, f.x));
  EXPECT_EQ(count(f.canonical(), "Binary"), 5);
}

TEST(Canonicalize, IntegersLoseTheirZeros) {
  Graph g;
  Builder b(g);
  const Value i = input(b, "i", DType::kI32, {4});
  g.add_output("y", add(b, i, scalar(b, DType::kI32, 0)));
  EXPECT_EQ(drop_dead(canonicalize(g)).size(), 1u);
}

TEST(Canonicalize, KeepsABroadcastingIdentity) {
  // x * ones[3, 4] is wider than x.
  Fixture f;
  f.g.add_output("y", mul(f.b, f.x, splat(f.b, DType::kF32, {3, 4}, 1)));
  EXPECT_EQ(count(f.canonical(), "Binary"), 1);
}

TEST(Canonicalize, MergesTransposes) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {2, 3, 5});
  const Value once = transpose(b, x, {1, 2, 0});
  g.add_output("twice", transpose(b, once, {1, 2, 0}));
  g.add_output("back", transpose(b, once, {2, 0, 1}));
  const Graph out = drop_dead(canonicalize(g));
  verify(out);
  EXPECT_EQ(count(out, "Transpose"), 1);
  EXPECT_EQ(out.outputs()[1].value, out.inputs()[0]);
}

TEST(Canonicalize, ExpandsAliases) {
  for (const OpRow& row : op_table()) {
    if (row.cls != RowClass::kAlias) continue;
    EXPECT_TRUE(row.def->decompose) << row.name;
  }
}

TEST(MergeCommon, MergesEqualCallsOnly) {
  Fixture f;
  const Value a = exp(f.b, f.x), b2 = exp(f.b, f.x), c = log(f.b, f.x);
  f.g.add_output("y", add(f.b, add(f.b, a, b2), c));
  const Graph out = drop_dead(merge_common(f.g));
  EXPECT_EQ(count(out, "Activation"), 2);
}

TEST(MergeCommon, SwapsOnlyWhereShapesAgree) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {4}), y = input(b, "y", DType::kF32, {4});
  g.add_output("a", add(b, x, y));
  g.add_output("b", add(b, y, x));
  g.add_output("c", sub(b, x, y));
  g.add_output("d", sub(b, y, x));
  const Graph out = merge_common(g);
  EXPECT_EQ(out.outputs()[0].value, out.outputs()[1].value);
  EXPECT_NE(out.outputs()[2].value, out.outputs()[3].value);
}

TEST(MergeCommon, TellsZerosAndNaNsApart) {
  Graph g;
  Builder b(g);
  g.add_output("plus", scalar(b, DType::kF32, 0.0));
  g.add_output("minus", scalar(b, DType::kF32, -0.0));
  g.add_output("nan", scalar(b, DType::kF32, NAN));
  g.add_output("nan2", scalar(b, DType::kF32, NAN));
  const Graph out = merge_common(g);
  EXPECT_NE(out.outputs()[0].value, out.outputs()[1].value);
  EXPECT_EQ(out.outputs()[2].value, out.outputs()[3].value);
}

TEST(DropDead, KeepsTheSignature) {
  Fixture f;
  param(f.b, "unused", DType::kF32, {9});
  exp(f.b, f.x);
  f.g.add_output("y", neg(f.b, f.x));
  const Graph out = drop_dead(f.g);
  EXPECT_EQ(out.inputs().size(), 1u);
  EXPECT_EQ(out.params().size(), 1u);
  EXPECT_EQ(count(out, "Activation"), 1);
}

FoldOptions fold_on_cpu() {
  FoldOptions options;
  options.evaluate = [](const OpDef& op, const Attrs& attrs, const std::vector<Array>& arrays) {
    return eval(cpu_device(), op, attrs, arrays);
  };
  return options;
}

TEST(Fold, EvaluatesConstants) {
  Graph g;
  Builder b(g);
  const Value c = constant(b, Array::from<float>({1, 2, 3}, {3}));
  g.add_output("y", add(b, mul(b, c, 2), scalar(b, DType::kF32, 1)));
  const Graph out = drop_dead(fold_constants(g, fold_on_cpu()));
  ASSERT_EQ(out.size(), 1u);
  const auto& value = out.node(out.outputs()[0].value).attrs.as<ConstantAttrs>().value;
  EXPECT_TRUE(value.same_bits(Array::from<float>({3, 5, 7}, {3})));
}

TEST(Fold, NeitherDrawsNorExplodes) {
  Graph g;
  Builder b(g);
  g.add_output("draw", rng_uniform(b, DType::kF32, {4}, 0, 1, 7));
  g.add_output("big", exp(b, splat(b, DType::kF32, {1 << 20, 1 << 20}, 1)));
  const Graph out = fold_constants(g, fold_on_cpu());
  EXPECT_EQ(count(out, "RngUniform"), 1);
  EXPECT_EQ(count(out, "Activation"), 1);
}

class NoKernels final : public KernelTable {
 public:
  std::string_view name() const override { return "bare"; }
  const KernelList* find(const OpDef&) const override { return nullptr; }
};

TEST(Legalize, RefusesPrimitivesWithEachReason) {
  Fixture f;
  f.b.set_label("layer 3");
  f.g.add_output("y", exp(f.b, f.x));
  try {
    legalize(f.g, NoKernels(), {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUnsupported);
    for (const char* part : {"Activation(f32[4])", "layer 3", "'bare'", "has no kernel"}) {
      EXPECT_NE(e.message().find(part), std::string::npos) << part << " in: " << e.message();
    }
  }
}

TEST(Legalize, DecomposesToKernelsOfTheDevice) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {2, 8});
  g.add_output("y", softmax(b, x));
  LegalizeOptions options;
  options.force_decompose = true;
  std::vector<LegalizeNote> notes;
  const Graph out = legalize(g, cpu_device().kernels(), options, &notes);
  verify(out);
  EXPECT_EQ(count(out, "Softmax"), 0);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].op, "Softmax");
  EXPECT_EQ(count(legalize(g, cpu_device().kernels(), {}), "Softmax"), 1);
}

TEST(Substitute, BindsAttributesToo) {
  Graph g;
  Builder b(g);
  const Dim n = Dim::symbol("n");
  const Value x = input(b, "x", DType::kF32, {n, 4});
  g.add_output("y", expand(b, reshape(b, x, {4 * n}), {2, 4 * n}));
  const Graph out = substitute_symbols(g, {{"n", 3}});
  verify(out);
  EXPECT_EQ(out.type(out.outputs()[0].value).shape, (Shape{2, 12}));
  EXPECT_TRUE(free_symbols(out).empty());
  EXPECT_EQ(free_symbols(g), (std::vector<std::string>{"n"}));
}

// Every decomposition uses only kinds above its own in ops.def and so ends in primitives.
TEST(Table, DecompositionsPointUpward) {
  for (const OpRow& row : op_table()) {
    if (!row.def || !row.def->decompose.derivative_of) continue;
    EXPECT_LT(order_of(*row.def->decompose.derivative_of), order_of(*row.def)) << row.name;
  }
}

}  // namespace
}  // namespace rlx
