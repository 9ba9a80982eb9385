#include "rlx/ir/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

#include "rlx/ir/graph.h"
#include "rlx/ir/verify.h"
#include "tests/unit/toy_ops.h"

namespace rlx {
namespace {

Graph parse_toy(std::string_view text) { return parse(text, toy::lookup); }
std::string parse_error(std::string_view text) {
  return error_of([&] { parse_toy(text); });
}
// An error in the attributes of a node that takes all kinds of them.
std::string field_error(std::string_view fields) {
  return parse_error("graph main {\n%0 = Input(){name = \"x\"}\n%1 = All(%0){" +
                     std::string(fields) + "}\n}");
}

TEST(Text, PrintsAsDocumented) {
  Graph g;
  Builder b(g);
  const Dim n = Dim::symbol("n");
  const Value x = toy::input(b, "x", DType::kI32, {n, Dim(64)});
  const Value w = toy::param(b, "w", DType::kI32, {Dim(64)}, true);
  const auto top = b.call(toy::kTop, Attrs::of(toy::kTop.fields, toy::TopAttrs{5, -1}), {x});
  g.add_output("logits", b.op(toy::kAdd, NoAttrs{}, {top[0], top[1]}));
  g.add_update("w", w);
  EXPECT_EQ(print(g), R"(graph main {
  %0 = Input(){name = "x", dtype = i32, shape = [n, 64]} : i32[n, 64]
  %1 = Param(){name = "w", dtype = i32, shape = [64], is_mutable = true} : i32[64]
  %2, %3 = Top(%0){k = 5, axis = 1} : i32[n, 5], i64[n, 5]
  %4 = Add(%2, %3) : i64[n, 5]
  output "logits" = %4
  update "w" = %1
}
)");
  EXPECT_EQ(parse_toy(print(g)), g);
}

TEST(Text, RichGraphRoundTrips) {
  const Graph g = toy::rich_graph();
  verify(g);
  const std::string text = print(g);
  const Graph back = parse_toy(text);
  EXPECT_EQ(back, g);
  EXPECT_EQ(back.name(), g.name());
  EXPECT_EQ(print(back), text);
  EXPECT_EQ(back.hash(), g.hash());
  verify(back);
  // Labels are comments, so they may stand in the text that is read.
  const std::string labelled = print(g, {.labels = true});
  EXPECT_NE(labelled.find("  // \"sum // of both\\nlines\"\n"), std::string::npos);
  EXPECT_EQ(parse_toy(labelled), g);
}

template <class T>
std::string constant_text(T v) {
  Graph g;
  Builder b(g);
  toy::constant(b, Array::scalar<T>(v));
  EXPECT_EQ(parse_toy(print(g)), g);
  const std::string s = print(g);
  const size_t begin = s.find('{', s.find("value")) + 1;
  return s.substr(begin, s.find("}}") - begin);
}

TEST(Text, NumbersAreShortest) {
  EXPECT_EQ(constant_text(0.1f), "0.1");
  EXPECT_EQ(constant_text(0.1), "0.1");
  EXPECT_EQ(constant_text(-0.0f), "-0");
  EXPECT_EQ(constant_text(1e30f), "1e+30");
  EXPECT_EQ(constant_text(f16(0.1f)), "0.1");
  EXPECT_EQ(constant_text(f16(65504.0f)), "65500");
  EXPECT_EQ(constant_text(f16(6e-8f)), "6e-08");
  EXPECT_EQ(constant_text(bf16(0.1f)), "0.1");
  EXPECT_EQ(constant_text(5e-324), "5e-324");
  EXPECT_EQ(constant_text(INFINITY), "inf");
  EXPECT_EQ(constant_text(-double(INFINITY)), "-inf");
  EXPECT_EQ(constant_text(std::bit_cast<float>(0x7FC00000u)), "nan");
  EXPECT_EQ(constant_text(std::bit_cast<float>(0xFF800001u)), "nan(0xff800001)");
  EXPECT_EQ(constant_text(std::complex<float>(1.5f, -0.0f)), "(1.5, -0)");
  EXPECT_EQ(constant_text(true), "true");
  EXPECT_EQ(constant_text(int64_t(INT64_MIN)), "-9223372036854775808");
  EXPECT_EQ(constant_text(uint64_t(UINT64_MAX)), "18446744073709551615");
}

TEST(Text, EveryHalfRoundTrips) {
  for (DType t : {DType::kF16, DType::kBF16}) {
    for (uint32_t first = 0; first < 65536; first += 64) {  // short enough to be listed
      Array a = Array::uninitialized(t, {64});
      for (uint32_t i = 0; i < 64; ++i) {
        static_cast<uint16_t*>(a.mutable_raw())[i] = uint16_t(first + i);
      }
      Graph g;
      Builder b(g);
      toy::constant(b, a);
      ASSERT_EQ(parse_toy(print(g)), g) << first;
    }
  }
}

TEST(Text, RandomFloatsRoundTrip) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 50; ++round) {
    Array a = Array::uninitialized(DType::kF32, {64}), d = Array::uninitialized(DType::kF64, {64});
    for (int i = 0; i < 64; ++i) {
      static_cast<uint32_t*>(a.mutable_raw())[i] = uint32_t(random());
      static_cast<uint64_t*>(d.mutable_raw())[i] = random();
    }
    Graph g;
    Builder b(g);
    toy::constant(b, a);
    toy::constant(b, d);
    toy::AllAttrs attrs;
    attrs.real = std::bit_cast<double>(random());
    toy::all(b, {0, 0}, attrs);
    ASSERT_EQ(parse_toy(print(g)), g);
  }
}

TEST(Text, StridedTensorsArePrintedInOrder) {
  int32_t data[] = {1, 2, 3, 4, 5, 6};
  const Array t = Array::borrow(DType::kI32, data, {3, 2}, {1, 3});
  const Field* f = toy::kAll.fields->find("array");
  EXPECT_EQ(print_field(*f, t), "i32[3, 2] {1, 4, 2, 5, 3, 6}");
}

TEST(Text, ElidedTensorsAreRefused) {
  Graph g;
  Builder b(g);
  toy::constant(b, toy::counting(DType::kI8, {100}));
  const std::string some = print(g, {.max_elements = 2});
  EXPECT_NE(some.find("i8[100] {11, 48, ...}"), std::string::npos) << some;
  EXPECT_NE(parse_error(some).find("elided"), std::string::npos);
  EXPECT_NE(parse_error(print(g, {.max_elements = 0})).find("elided"), std::string::npos);
  const std::string whole = print(g, {.max_elements = 100});
  EXPECT_NE(whole.find("base64"), std::string::npos);
  EXPECT_EQ(parse_toy(whole), g);
}

TEST(Text, PrintsSingleFields) {
  const auto show = [](std::string_view name, const FieldValue& v) {
    return print_field(*toy::kAll.fields->find(name), v);
  };
  EXPECT_EQ(show("flag", true), "true");
  EXPECT_EQ(show("number", int64_t(-3)), "-3");
  EXPECT_EQ(show("real", 0.25), "0.25");
  EXPECT_EQ(show("text", std::string("a\"b\n")), R"("a\"b\n")");
  EXPECT_EQ(show("ints", std::vector<int64_t>{1, -2}), "[1, -2]");
  EXPECT_EQ(show("maybe_ints", FieldValue()), "none");
  EXPECT_EQ(show("maybe_dim", Dim::symbol("none")), "(none)");
  EXPECT_EQ(show("maybe_mode", int64_t(1)), "\"none\"");
  EXPECT_EQ(show("mode", int64_t(0)), "Plain");
  EXPECT_EQ(show("graph", GraphRef()), "null");
  EXPECT_EQ(show("array", Array()), "undefined");
  toy::AllAttrs a;
  a.array = toy::counting(DType::kU8, {1000});
  EXPECT_LT(Attrs::of(toy::kAll.fields, a).to_string().size(), 200u);
}

TEST(Text, TypesAndCommentsAreOptional) {
  const Graph g = parse_toy(R"(
    // A text that a person wrote.
    graph "my graph"{%a=Input(){name="x",shape=[ 2 , n+n ]}  // the input
      %b2 = Add(%a,%a){ } : f32[2, 2*n]
      output"y"=%b2 })");
  EXPECT_EQ(g.name(), "my graph");
  EXPECT_EQ(g.type(g.outputs()[0].value).to_string(), "f32[2, 2*n]");
}

TEST(Text, ErrorsSayWhereAndWhat) {
  EXPECT_EQ(parse_error(""), "line 1, column 1: expected 'graph <name> {'");
  EXPECT_EQ(parse_error("graph main {\n  %0 = Nope()\n}"),
            "line 2, column 8: the op 'Nope' is unknown or not built");
  EXPECT_EQ(parse_error("graph main {\n  %0 = Add(%1)\n}"),
            "line 2, column 12: %1 is not the result of an earlier node");
  EXPECT_EQ(parse_error("graph main {} x"), "line 1, column 15: there is text behind the graph");
  EXPECT_EQ(parse_error("graph main {"),
            "line 1, column 13: expected a node, an output, an update or '}'");
  EXPECT_EQ(parse_error("graph main { foo }"),
            "line 1, column 14: expected a node, an output, an update or '}', found 'foo'");
  EXPECT_EQ(parse_error("graph g { %0 = Top() }"), "line 1, column 16: Top(): expected 1 operand");
  const std::string x = "graph g {\n%0 = Input(){name = \"x\", shape = [4]}\n";
  EXPECT_EQ(parse_error(x + "%0 = Add(%0, %0)}"), "line 3, column 1: %0 is already a value");
  EXPECT_EQ(parse_error(x + "%1, %1 = Top(%0)}"), "line 3, column 10: %1 is named twice");
  EXPECT_EQ(parse_error(x + "%1 = Top(%0)}"), "line 3, column 6: Top has 2 results, 1 are named");
  EXPECT_EQ(parse_error(x + "%1 = Add(%0, %0) : f32[5]}"),
            "line 3, column 20: the text says f32[5], Add gives f32[4]");
  EXPECT_EQ(parse_error(x + "output \"a\" = %0 output \"a\" = %0}"),
            "line 3, column 17: two outputs are called 'a'");
  EXPECT_EQ(parse_error(x + "update \"a\" = %0}"),
            "line 3, column 1: the graph has no param 'a'; it has: none");
  EXPECT_EQ(parse_error(x + "%1 = Input(){name = \"x\"}}"),
            "line 3, column 6: two inputs are called 'x'");
}

TEST(Text, AttributeErrors) {
  EXPECT_NE(field_error("nope = 1")
                .find("line 3, column 14: All has no attribute 'nope'; it has: "
                      "flag, number, real, text, "),
            std::string::npos);
  EXPECT_EQ(field_error("mode = Nope"),
            "line 3, column 21: the attribute 'mode' has no value 'Nope'; there are: Plain, none, "
            "an odd \"name\"");
  EXPECT_EQ(field_error("flag = true, flag = true"),
            "line 3, column 27: the attribute 'flag' is given twice");
  EXPECT_EQ(field_error("flag = 1"), "line 3, column 21: expected true or false");
  EXPECT_EQ(field_error("flag = none"), "line 3, column 21: expected true or false");
  EXPECT_EQ(field_error("number = 1.5"), "line 3, column 23: '1.5' is not an integer");
  EXPECT_EQ(field_error("number = 9223372036854775808"),
            "line 3, column 23: 9223372036854775808 does not fit in 64 bits");
  EXPECT_EQ(field_error("real = 1e999"), "line 3, column 21: 1e999 is outside of the range of f64");
  EXPECT_EQ(field_error("real = infinity"),
            "line 3, column 21: 'infinity' is not a number of the dtype f64");
  EXPECT_NE(field_error("real = nan(0x1)").find("is not a NaN of f64"), std::string::npos);
  EXPECT_EQ(field_error("text = \"abc"), "line 3, column 21: this string has no end");
  EXPECT_NE(field_error("text = \"\\q\"").find("unknown escape"), std::string::npos);
  EXPECT_NE(field_error("dtype = f31").find("'f31' is not a dtype; there are: bool i8"),
            std::string::npos);
  EXPECT_EQ(field_error("dim = n +"), "line 3, column 20: 'n +' is not a size expression");
  EXPECT_NE(field_error("dim = (((n").find("is not a size expression"), std::string::npos);
  EXPECT_NE(field_error("shape = [2, 3").find("not a size expression"), std::string::npos);
  EXPECT_NE(field_error("shape = [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]").find("at most 16 axes"),
            std::string::npos);
  EXPECT_EQ(field_error("ints = [1, 2"), "line 3, column 26: expected ']', found '}'");
}

TEST(Text, TensorErrors) {
  EXPECT_EQ(field_error("array = f32[2] {1}"),
            "line 3, column 31: elements are missing: 1 of 2 are there");
  EXPECT_EQ(field_error("array = f32[1] {1, 2}"),
            "line 3, column 31: there are more elements than 1");
  EXPECT_NE(field_error("array = f32[-1] {}").find("a size is negative"), std::string::npos);
  EXPECT_NE(field_error("array = f32[1000000] {1}").find("the text ends earlier"),
            std::string::npos);
  EXPECT_NE(field_error("array = f32[4294967296, 4294967296] {1}").find("exceeds 64 bits"),
            std::string::npos);
  EXPECT_NE(field_error("array = f32[1000000000] {1}").find("at most 2 GiB"), std::string::npos);
  EXPECT_NE(field_error("array = f32[1000000] base64 \"AAAA\"").find("base64 characters"),
            std::string::npos);
  EXPECT_NE(field_error("array = i8[3] base64 \"A*AA\"").find("not base64"), std::string::npos);
  EXPECT_NE(field_error("array = i8[1] base64 \"AB==\"").find("not base64"), std::string::npos);
  EXPECT_NE(field_error("array = bool[3] base64 \"AQIB\"").find("neither 0 nor 1"),
            std::string::npos);
  EXPECT_NE(field_error("array = i8[1] {128}").find("outside of the range of i8"),
            std::string::npos);
  EXPECT_NE(field_error("array = u8[1] {-1}").find("not a number of the dtype u8"),
            std::string::npos);
  EXPECT_NE(field_error("array = f16[1] {65520}").find("outside of the range of f16"),
            std::string::npos);
  EXPECT_EQ(field_error("array = c64[1] {1}"), "line 3, column 30: expected '(', found '1'");
}

TEST(Text, DepthIsLimited) {
  const auto nested = [](int depth) {
    std::string s = "graph g {";
    for (int i = 1; i < depth; ++i) s += "Body(){body = graph g {";
    for (int i = 1; i < depth; ++i) s += "}}";
    return s + "}";
  };
  const Graph g = parse_toy(nested(32));
  EXPECT_EQ(g.size(), 1u);
  EXPECT_NE(parse_error(nested(33)).find("nest deeper than 32"), std::string::npos);
  EXPECT_NE(parse_error(nested(100000)).find("nest deeper than 32"), std::string::npos);
}

// Whatever comes in: an Error or a graph whose text is a fixed point.
void parse_anything(const std::string& text) {
  try {
    const Graph g = parse_toy(text);
    const std::string once = print(g);
    EXPECT_EQ(print(parse_toy(once)), once);
  } catch (const Error& e) {
    EXPECT_EQ(e.message().find("line "), 0u) << e.message();
  }
}

TEST(Text, DamagedTextsAreRefusedOrRead) {
  const std::string text = print(toy::rich_graph());
  std::mt19937 random(3);
  for (size_t cut = 0; cut < text.size(); cut += 1 + random() % 7) {
    parse_anything(text.substr(0, cut));
  }
  const std::string_view spice = "{}[]()%\",:=.-+e09nx\\\n \0\xFF";
  for (int round = 0; round < 1500; ++round) {
    std::string s = text;
    for (int k = 1 + int(random() % 3); k > 0; --k) {
      const size_t at = random() % s.size(), length = random() % 8;
      const int kind = int(random() % 4);
      if (kind == 0) s[at] = spice[random() % spice.size()];
      if (kind == 1) s.erase(at, length);
      if (kind == 2) s.insert(at, 1, spice[random() % spice.size()]);
      if (kind == 3) s.insert(at, s.substr(random() % s.size(), length));
    }
    parse_anything(s);
  }
}

TEST(Text, LongInputsTakeLinearTime) {
  std::string s = "graph g {\n";
  for (int i = 0; i < 20000; ++i) {
    s += fmt::format("%{} = Input(){{name = \"i{}\", shape = [n]}} output \"o{}\" = %{}\n", i, i, i,
                     i);
  }
  const Graph g = parse_toy(s + "}");
  EXPECT_EQ(g.inputs().size(), 20000u);
  EXPECT_EQ(parse_toy(print(g)), g);
}

}  // namespace
}  // namespace rlx
