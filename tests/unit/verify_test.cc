#include "rlx/ir/verify.h"

#include <gtest/gtest.h>

#include "rlx/ir/rewrite.h"
#include "tests/unit/toy_ops.h"

namespace rlx {
namespace {

std::string verify_error(const Graph& g) {
  return error_of([&] { verify(g, "folding"); }, ErrorKind::kInternal);
}

struct Fixture {
  Graph g;
  Builder b{g};
  Value x = toy::input(b, "x", DType::kF32, {Dim(2), Dim(3)});
};

Node add_node(std::vector<Value> operands, TensorType result) {
  return Node{
      &toy::kAdd, Attrs::of(toy::kAdd.fields, NoAttrs{}), std::move(operands), {result}, ""};
}
const TensorType kType{DType::kF32, {Dim(2), Dim(3)}};

TEST(Verify, AcceptsWhatBuilderMakes) {
  verify(toy::rich_graph());
  verify(Graph());
}

TEST(Verify, FindsLaterOperands) {
  Fixture f;
  f.g.append(add_node({f.x, Value{1, 0}}, kType));
  EXPECT_EQ(verify_error(f.g),
            "graph 'main' after folding: node 1 (Add): it uses node 1, which is not earlier");
}

TEST(Verify, FindsMissingResults) {
  Fixture f;
  f.g.append(add_node({f.x, Value{0, 1}}, kType));
  EXPECT_NE(verify_error(f.g).find("it uses result 1 of node 0, which has 1"), std::string::npos);
}

TEST(Verify, FindsWrongTypes) {
  Fixture f;
  f.g.append(add_node({f.x, f.x}, {DType::kF64, {Dim(2), Dim(3)}}));
  EXPECT_NE(verify_error(f.g).find("result 0 is recorded as f64[2, 3], inference gives f32[2, 3]"),
            std::string::npos);
}

TEST(Verify, FindsWrongResultCounts) {
  Fixture f;
  Node n = add_node({f.x, f.x}, kType);
  n.results.push_back(kType);
  f.g.append(std::move(n));
  EXPECT_NE(verify_error(f.g).find("it has 2 results, inference gives 1"), std::string::npos);
}

TEST(Verify, FindsAttributesOutOfNormalForm) {
  Fixture f;
  f.g.append({&toy::kTop,
              Attrs::of(toy::kTop.fields, toy::TopAttrs{1, -1}),
              {f.x},
              {{DType::kF32, {Dim(2), Dim(1)}}, {DType::kI64, {Dim(2), Dim(1)}}},
              ""});
  EXPECT_NE(verify_error(f.g).find("its attributes are not in normal form"), std::string::npos);
}

TEST(Verify, FindsAttributesOfAnotherOp) {
  Fixture f;
  f.g.append({&toy::kTop, Attrs::of(toy::kAdd.fields, NoAttrs{}), {f.x}, {kType}, ""});
  EXPECT_NE(verify_error(f.g).find("attributes of another op"), std::string::npos);
  Fixture h;
  h.g.append({&toy::kAdd, Attrs(), {h.x, h.x}, {kType}, ""});
  EXPECT_NE(verify_error(h.g).find("attributes of another op"), std::string::npos);
}

TEST(Verify, FindsErrorsOfInference) {
  Fixture f;
  f.g.append(add_node({f.x}, kType));
  EXPECT_NE(verify_error(f.g).find("expected 2 operands, got 1"), std::string::npos);
}

TEST(Verify, LooksIntoBodies) {
  Fixture f;
  f.g.set_name("inside");
  f.g.append(add_node({f.x, f.x}, {DType::kF64, {}}));
  Graph outer;
  Builder b(outer);
  b.call(toy::kBody,
         Attrs::of(toy::kBody.fields, toy::BodyAttrs{std::make_shared<const Graph>(f.g)}),
         std::initializer_list<Value>{});
  const std::string message = verify_error(outer);
  EXPECT_NE(message.find("node 0 (Body): graph 'inside'"), std::string::npos) << message;
}

TEST(Verify, FindsWrongOutputs) {
  Fixture f;
  f.g.add_output("y", f.x);
  f.g.set_output(0, {7, 0});
  EXPECT_EQ(verify_error(f.g), "graph 'main' after folding: output y is not a value of the graph");
}

TEST(Graph, NamesAreUniqueAndFound) {
  Fixture f;
  const Value w = toy::param(f.b, "w", DType::kF32, {}, false);
  const Value m = toy::param(f.b, "m", DType::kF32, {}, true);
  f.g.add_output("y", f.x);
  EXPECT_EQ(f.g.input_index("x"), 0u);
  EXPECT_EQ(f.g.param_index("m"), 1u);
  EXPECT_EQ(f.g.output_index("y"), 0u);
  EXPECT_EQ(error_of([&] { f.g.param_index("x"); }), "the graph has no param 'x'; it has: w, m");
  EXPECT_EQ(error_of([&] { toy::input(f.b, "x", DType::kF32, {}); }), "two inputs are called 'x'");
  EXPECT_EQ(error_of([&] { f.g.add_output("y", f.x); }), "two outputs are called 'y'");
  EXPECT_EQ(error_of([&] {
              f.g.add_output("z", {9, 0});
            }),
            "output 'z' is not a value of this graph");
  EXPECT_EQ(error_of([&] { f.g.add_update("w", w); }),
            "param 'w' is frozen: only a mutable param can be updated");
  EXPECT_EQ(error_of([&] { f.g.add_update("m", f.x); }),
            "param 'm' is f32[], its update is f32[2, 3]");
  f.g.add_update("m", w);
  EXPECT_EQ(error_of([&] { f.g.add_update("m", m); }), "param 'm' is updated twice");
  verify(f.g);
}

TEST(Graph, EqualityCountsAllButLabels) {
  const Graph g = toy::rich_graph();
  Graph same = toy::rich_graph();
  same.set_label(0, "another label");
  EXPECT_EQ(same, g);
  EXPECT_EQ(same.hash(), g.hash());
  Graph other = toy::rich_graph();
  other.set_output(0, g.outputs()[1].value);
  EXPECT_FALSE(other == g);
  other = toy::rich_graph();
  other.append(g.node(uint32_t(g.size() - 1)));
  EXPECT_FALSE(other == g);
}

TEST(Graph, FreeSymbolsComeFromLeaves) {
  Graph g;
  Builder b(g);
  const Dim n = Dim::symbol("n"), m = Dim::symbol("m");
  toy::param(b, "w", DType::kF32, {m, n * m}, false);
  toy::input(b, "x", DType::kF32, {floor_div(n, 2), n});
  EXPECT_EQ(free_symbols(g), (std::vector<std::string>{"n", "m"}));
}

TEST(Rewrite, CopiesAnEqualGraph) {
  const Graph g = toy::rich_graph();
  const Graph copy = rewrite(g, nullptr);
  EXPECT_EQ(copy, g);
  verify(copy);
  for (uint32_t i = 0; i < g.size(); ++i) EXPECT_EQ(copy.node(i).label, g.node(i).label);
}

TEST(Rewrite, ReplacesNodes) {
  Fixture f;
  const Value y = f.b.op(toy::kAdd, NoAttrs{}, {f.x, f.x});
  const Value z = f.b.op(toy::kAdd, NoAttrs{}, {y, f.x});
  f.g.add_output("z", z);
  // x + x becomes x.
  const Graph out = rewrite(f.g, [](Builder&, const Node&, std::span<const Value> operands) {
    return operands[0] == operands[1] ? std::optional(std::vector<Value>{operands[0]})
                                      : std::nullopt;
  });
  EXPECT_EQ(out.size(), 1u);  // y is x, so z is x + x too
  EXPECT_EQ(out.outputs()[0].value, out.inputs()[0]);
  verify(out);
  const auto wrong = [](Builder&, const Node&, std::span<const Value>) {
    return std::optional(std::vector<Value>());
  };
  EXPECT_NE(error_of([&] { rewrite(f.g, wrong); }, ErrorKind::kInternal)
                .find("a rewrite of Add gave 0 values instead of 1"),
            std::string::npos);
}

TEST(Rewrite, InlinesBodies) {
  Fixture body;
  const Value twice = body.b.op(toy::kAdd, NoAttrs{}, {body.x, body.x});
  body.g.add_output("twice", twice);
  body.g.add_output("same", body.x);
  Fixture f;
  const auto values = inline_graph(f.b, body.g, std::vector<Value>{f.x});
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(values[1], f.x);
  EXPECT_EQ(f.g.node(values[0]).operands, (std::vector<Value>{f.x, f.x}));
  verify(f.g);
  EXPECT_EQ(error_of([&] { inline_graph(f.b, body.g, {}); }),
            "the graph 'main' takes 1 inputs, 0 were given");
  toy::param(body.b, "w", DType::kF32, {}, false);
  error_of([&] { inline_graph(f.b, body.g, std::vector<Value>{f.x}); }, ErrorKind::kInternal);
}

TEST(Rewrite, LivenessAndUses) {
  Fixture f;
  const Value dead = f.b.op(toy::kAdd, NoAttrs{}, {f.x, f.x});
  const auto top = f.b.call(toy::kTop, Attrs::of(toy::kTop.fields, toy::TopAttrs{1, 0}), {f.x});
  f.b.op(toy::kAdd, NoAttrs{}, {dead, f.x});
  f.g.add_output("i", top[1]);
  EXPECT_EQ(live_nodes(f.g), (std::vector<uint8_t>{1, 0, 1, 0}));
  EXPECT_EQ(use_counts(f.g), (std::vector<uint32_t>{4, 1, 1, 0}));
}

TEST(Builder, RefusesForeignOperands) {
  Fixture f;
  EXPECT_EQ(error_of([&] {
              f.b.op(toy::kAdd, NoAttrs{}, {f.x, Value{}});
            }),
            "Add: operand 1 is not a value of this graph");
  EXPECT_EQ(error_of([&] {
              f.b.op(toy::kAdd, NoAttrs{}, {Value{0, 1}, f.x});
            }),
            "Add: operand 0 is not a value of this graph");
  const Value y = toy::input(f.b, "y", DType::kF32, {Dim(5)});
  EXPECT_NE(error_of([&] {
              f.b.op(toy::kAdd, NoAttrs{}, {f.x, y});
            }).find("Add(f32[2, 3], f32[5]): shapes [2, 3] and [5] do not broadcast"),
            std::string::npos);
  EXPECT_EQ(f.g.size(), 2u);  // a refused call leaves no node
}

}  // namespace
}  // namespace rlx
