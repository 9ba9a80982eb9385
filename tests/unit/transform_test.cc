// Transforms: which kinds they leave in the graph, what they share, how they name things and what
// they refuse. Numbers are checked by rlx-conformance grad for every op.
#include "rlx/transform/grad.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "rlx/base/error.h"
#include "rlx/compile/passes.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/verify.h"
#include "rlx/ops/activation.h"
#include "rlx/ops/build.h"
#include "rlx/ops/conv.h"
#include "rlx/ops/pool.h"
#include "rlx/ops/reduce.h"
#include "rlx/transform/jvp.h"
#include "rlx/transform/vmap.h"

namespace rlx {
namespace {

std::map<std::string, int> kinds(const Graph& g) {
  std::map<std::string, int> count;
  const Graph live = drop_dead(g);
  for (const Node& n : live.nodes()) ++count[std::string(n.op->name)];
  return count;
}

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "no error";
}

Graph conv_graph(int64_t groups = 1) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {2, 4, 8, 8});
  const Value w = input(b, "w", DType::kF32, {6, 4 / groups, 3, 3});
  ConvAttrs attrs;
  attrs.padding = {1, 1};
  attrs.groups = groups;
  g.add_output("y", conv(b, x, w, attrs));
  return g;
}

Graph matmul_graph() {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {3, 4});
  const Value w = input(b, "w", DType::kF32, {4, 5});
  g.add_output("y", matmul(b, x, w));
  return g;
}

using Names = std::vector<std::string>;

TEST(Vmap, ConvStaysConv) {
  for (int64_t groups : {1, 2}) {
    for (const Names& names : {Names{"x"}, Names{"w"}, Names{"x", "w"}}) {
      const Graph batched = vmap(conv_graph(groups), 7, names);
      verify(batched);
      auto count = kinds(batched);
      EXPECT_EQ(count["Conv"], 1) << names.size() << " batched, " << groups << " groups";
      EXPECT_EQ(count["MatMul"] + count["Gather"] + count["DotGeneral"], 0);
      EXPECT_EQ(batched.type(batched.outputs()[0].value).shape, (Shape{7, 2, 6, 8, 8}));
    }
  }
}

TEST(Vmap, MatMulStaysMatMul) {
  for (const Names& names : {Names{"x"}, Names{"w"}, Names{"x", "w"}}) {
    auto count = kinds(vmap(matmul_graph(), 7, names));
    EXPECT_EQ(count["MatMul"], 1);
    EXPECT_EQ(count["Transpose"], 0);
  }
  // Batched twice.
  auto twice = kinds(vmap(vmap(matmul_graph(), 7, {"x"}), 3, {"x", "w"}));
  EXPECT_EQ(twice["MatMul"], 1);
}

TEST(Vmap, GradientsOfConvStayConvolutions) {
  const Graph reverse = vjp(conv_graph(), {"x", "w"});
  auto count = kinds(vmap(reverse, 3, {"x", "w", "ct_y"}));
  EXPECT_EQ(count["Conv"], 1);
  EXPECT_EQ(count["Conv2dBackwardInput"], 1);
  EXPECT_EQ(count["Conv2dBackwardWeight"], 1);
  EXPECT_EQ(count["Gather"] + count["GatherBackward"], 0);
  auto other = kinds(vjp(vmap(conv_graph(), 3, {"x", "w"}), {"x", "w"}));
  EXPECT_EQ(other["Conv2dBackwardInput"], 1);
  EXPECT_EQ(other["Conv2dBackwardWeight"], 1);
}

TEST(Vmap, PoolSoftmaxAndNormsStayThemselves) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {2, 3, 8, 8});
  PoolAttrs pooling;
  pooling.kernel_size = {2, 2};
  g.add_output("pool", pool(b, x, pooling));
  g.add_output("softmax", softmax(b, x, 1));
  g.add_output("norm",
               layer_norm(b, x, splat(b, DType::kF32, {8}, 1), splat(b, DType::kF32, {8}, 0)));
  g.add_output("sum", sum(b, x, {1, 2}));
  auto count = kinds(vmap(g, 5, {"x"}));
  EXPECT_EQ(count["Pool"], 1);
  EXPECT_EQ(count["Softmax"], 1);
  EXPECT_EQ(count["LayerNorm"], 1);
  EXPECT_EQ(count["Reduce"], 1);
}

TEST(Vmap, SharesWhatIsNotBatched) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {4});
  const Value w = param(b, "w", DType::kF32, {4});
  g.add_output("y", mul(b, x, exp(b, w)));
  g.add_output("e", exp(b, w));
  const Graph batched = vmap(g, Dim::symbol("n"), {"x"});
  EXPECT_EQ(batched.type(batched.params()[0]).shape, (Shape{4}));
  for (const Node& n : batched.nodes()) {
    if (n.op->name != "Activation") continue;
    EXPECT_EQ(n.results[0].shape, (Shape{4}));
  }
  EXPECT_EQ(batched.type(batched.outputs()[1].value).shape, (Shape{Dim::symbol("n"), 4}));
}

TEST(Grad, ForwardAndBackwardShareWork) {
  // The loss needs exp(x) once; its derivative is that same value after merging.
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {16});
  g.add_output("loss", sum(b, exp(b, x), {0}));
  const Graph merged = drop_dead(merge_common(grad(g, "loss", {"x"})));
  int exps = 0;
  for (const Node& n : merged.nodes()) {
    exps +=
        n.op->name == "Activation" && n.attrs.as<ActivationAttrs>().kind == ActivationKind::kExp;
  }
  EXPECT_EQ(exps, 1);
}

TEST(Grad, UnusedInputsHaveZeroGradients) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF64, {3});
  input(b, "unused", DType::kF64, {2, 2});
  g.add_output("loss", sum(b, x, {0}));
  const Graph d = grad(g, "loss", {"x", "unused"});
  verify(d);
  EXPECT_EQ(d.outputs()[1].name, "d_x");
  EXPECT_EQ(d.type(d.outputs()[d.output_index("d_unused")].value).shape, (Shape{2, 2}));
}

TEST(Grad, StopGradientStops) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF64, {3});
  g.add_output("loss", sum(b, mul(b, x, stop_gradient(b, x)), {0}));
  const Graph d = drop_dead(canonicalize(grad(g, "loss", {"x"})));
  // d/dx (x * stop(x)) = stop(x): the seed times x, one product in all besides the forward one.
  verify(d);
  EXPECT_LE(kinds(d)["Binary"], 2);
}

TEST(Grad, NamesStayUniqueWhenRepeated) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF64, {});
  g.add_output("y", mul(b, mul(b, x, x), x));
  const Graph second = grad(grad(g, "y", {"x"}), "d_x", {"x"});
  EXPECT_EQ(second.outputs()[2].name, "d_d_x");
  const Graph twice = jvp(jvp(g, {"x"}), {"x"});
  EXPECT_EQ(twice.name_of(twice.inputs()[2]), "t_t_x");
}

TEST(Grad, UpdatesSurvive) {
  Graph g;
  Builder b(g);
  const Value w = param(b, "w", DType::kF32, {2}, true);
  g.add_output("loss", sum(b, w, {0}));
  g.add_update("w", mul(b, w, 0.5));
  EXPECT_EQ(grad(g, "loss", {"w"}).updates().size(), 1u);
}

TEST(Grad, RefusesWithReasons) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {3});
  const Value i = input(b, "i", DType::kI32, {3});
  g.add_output("vector", exp(b, x));
  g.add_output("count", sum(b, i, {0}));
  g.add_output("loss", sum(b, x, {0}));
  EXPECT_NE(message_of([&] { grad(g, "vector", {"x"}); }).find("must be a real scalar"),
            std::string::npos);
  EXPECT_NE(message_of([&] { grad(g, "count", {"x"}); }).find("must be a real scalar"),
            std::string::npos);
  EXPECT_NE(message_of([&] { grad(g, "loss", {"i"}); }).find("only floats and complex"),
            std::string::npos);
  EXPECT_NE(message_of([&] { grad(g, "loss", {"nope"}); }).find("no input or param 'nope'"),
            std::string::npos);
  EXPECT_NE(message_of([&] { grad(g, "loss", {"x", "x"}); }).find("twice"), std::string::npos);
  EXPECT_NE(message_of([&] { grad(g, "nope", {"x"}); }).find("no output 'nope'"),
            std::string::npos);
}

TEST(Vmap, RefusesUpdatesAndUnknownNames) {
  Graph g;
  Builder b(g);
  const Value w = param(b, "w", DType::kF32, {2}, true);
  const Value x = input(b, "x", DType::kF32, {2});
  g.add_output("y", mul(b, w, x));
  EXPECT_NE(message_of([&] { vmap(g, 3, {"z"}); }).find("no input 'z'"), std::string::npos);
  g.add_update("w", mul(b, w, x));
  EXPECT_NE(message_of([&] { vmap(g, 3, {"x"}); }).find("cannot share an update"),
            std::string::npos);
}

// Derivatives keep working on graphs with symbolic sizes.
TEST(Grad, SymbolicSizes) {
  Graph g;
  Builder b(g);
  const Dim n = Dim::symbol("n");
  const Value x = input(b, "x", DType::kF32, {n, 1, 8, 8});
  const Value labels = input(b, "labels", DType::kI64, {n});
  const Value w = param(b, "w", DType::kF32, {4, 1, 3, 3});
  ConvAttrs attrs;
  attrs.padding = {1, 1};
  PoolAttrs pooling;
  pooling.kernel_size = {2, 2};
  Value h = pool(b, relu(b, conv(b, x, w, attrs)), pooling);
  h = reshape(b, h, {n, 64});
  const Value v = param(b, "v", DType::kF32, {64, 10});
  g.add_output("loss", mean(b, softmax_cross_entropy(b, matmul(b, h, v), labels), {0}));
  const Graph d = grad(g, "loss", {"w", "v"});
  verify(d);
  EXPECT_EQ(d.type(d.outputs()[1].value).shape, (Shape{4, 1, 3, 3}));
  const Graph bound = substitute_symbols(d, {{"n", 5}});
  verify(bound);
  EXPECT_EQ(bound.type(bound.inputs()[0]).shape, (Shape{5, 1, 8, 8}));
  // Every kind is one of the forward's or its own backward kind: nothing fell apart.
  auto count = kinds(d);
  EXPECT_EQ(count["Conv"], 1);
  EXPECT_EQ(count["Conv2dBackwardWeight"], 1);
  EXPECT_EQ(count["MaxPool2dBackward"], 1);
  EXPECT_EQ(count["ReluBackward"], 1);
  EXPECT_EQ(count["SoftmaxCrossEntropyBackward"], 1);
  EXPECT_EQ(count["Gather"], 0);
}

}  // namespace
}  // namespace rlx
