#include "rlx/ir/field.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "rlx/ir/graph.h"
#include "rlx/ir/text.h"
#include "tests/unit/toy_ops.h"

namespace rlx {
namespace {

using toy::AllAttrs;

Attrs attrs_of(AllAttrs a) { return Attrs::of(toy::kAll.fields, std::move(a)); }

Attrs with(std::string_view name, FieldValue value) {
  return attrs_of({}).with(name, std::move(value));
}

GraphRef body(double value) {
  Graph g;
  Builder b(g);
  toy::constant(b, Array::scalar(value));
  return std::make_shared<const Graph>(std::move(g));
}

// A value that differs from the default of each field.
std::vector<std::pair<std::string_view, FieldValue>> other_values() {
  return {
      {"flag", true},
      {"number", int64_t(-1)},
      {"real", 0.25},
      {"text", std::string("x")},
      {"dtype", DType::kI8},
      {"ints", std::vector<int64_t>{3}},
      {"dim", Dim::symbol("n")},
      {"shape", Shape{Dim(1)}},
      {"array", Array::scalar(1.0f)},
      {"graph", body(1)},
      {"mode", int64_t(2)},
      {"maybe_flag", false},
      {"maybe_number", FieldValue()},
      {"maybe_real", 0.0},
      {"maybe_text", std::string()},
      {"maybe_dtype", DType::kF32},
      {"maybe_ints", std::vector<int64_t>()},
      {"maybe_dim", Dim(0)},
      {"maybe_shape", Shape()},
      {"maybe_array", Array()},
      {"maybe_mode", int64_t(0)},
  };
}

TEST(Field, ReflectsEveryField) {
  const auto others = other_values();
  const auto& fields = toy::kAll.fields->fields;
  ASSERT_EQ(fields.size(), others.size());
  const Attrs defaults = attrs_of({});
  EXPECT_EQ(defaults.to_string(), "");
  for (size_t i = 0; i < others.size(); ++i) {
    const auto& [name, value] = others[i];
    EXPECT_EQ(fields[i].name, name);
    EXPECT_EQ(fields[i].optional, name.starts_with("maybe_"));
    const Attrs changed = defaults.with(name, value);
    EXPECT_TRUE(field_equal(changed.field(name), value)) << name;
    EXPECT_EQ(field_hash(changed.field(name)), field_hash(value)) << name;
    EXPECT_FALSE(changed == defaults) << name;
    EXPECT_NE(changed.hash(), defaults.hash()) << name;
    EXPECT_EQ(changed.to_string(),
              std::string(name) + " = " + print_field(fields[i], value, {.max_elements = 16}));
    // All other fields are as before.
    EXPECT_EQ(changed.with(name, defaults.field(name)), defaults) << name;
    EXPECT_EQ(changed.with(name, defaults.field(name)).hash(), defaults.hash()) << name;
  }
}

TEST(Field, StructuresAreReached) {
  const Attrs a = with("number", int64_t(5)).with("mode", int64_t(1));
  EXPECT_EQ(a.as<AllAttrs>().number, 5);
  EXPECT_EQ(a.as<AllAttrs>().mode, toy::Mode::kNone);
  EXPECT_EQ(enum_name(toy::Mode::kNone), "none");
  EXPECT_EQ(kEnumCount<toy::Mode>, 3u);
  error_of([&] { a.as<NoAttrs>(); }, ErrorKind::kInternal);
  error_of([&] { Attrs().as<NoAttrs>(); }, ErrorKind::kInternal);
  error_of([&] { Attrs::of(toy::kAll.fields, NoAttrs{}); }, ErrorKind::kInternal);
}

TEST(Field, WrongValuesAreRefused) {
  const Attrs a = attrs_of({});
  EXPECT_EQ(error_of([&] { a.field("nope"); }), "there is no attribute 'nope'");
  EXPECT_EQ(error_of([&] { a.with("nope", true); }), "there is no attribute 'nope'");
  EXPECT_EQ(error_of([&] { Attrs().field("x"); }), "there is no attribute 'x'");
  EXPECT_EQ(error_of([&] { a.with("number", 1.0); }), "attribute 'number' wants an integer");
  EXPECT_EQ(error_of([&] { a.with("mode", true); }), "attribute 'mode' wants a name");
  EXPECT_EQ(error_of([&] { a.with("mode", int64_t(3)); }),
            "attribute 'mode' has the value number 3, there are 3");
  EXPECT_THROW(a.with("mode", int64_t(-1)), Error);
  EXPECT_THROW(a.with("maybe_mode", int64_t(3)), Error);
  EXPECT_EQ(error_of([&] { a.with("flag", FieldValue()); }), "attribute 'flag' wants a bool");
  for (const auto& [name, value] : other_values()) {
    // An empty value fits the optional fields, and no field takes the value of another kind.
    const bool optional = name.starts_with("maybe_");
    if (optional) {
      EXPECT_NO_THROW(a.with(name, FieldValue()));
    } else {
      EXPECT_THROW(a.with(name, FieldValue()), Error) << name;
    }
    const FieldValue wrong = name.find("text") == std::string_view::npos
                                 ? FieldValue(std::string("x"))
                                 : FieldValue(true);
    EXPECT_THROW(a.with(name, wrong), Error) << name;
  }
}

TEST(Field, EqualityIsOfBits) {
  const auto real = [](double v) { return with("real", v); };
  EXPECT_EQ(real(NAN), real(NAN));
  EXPECT_EQ(real(NAN).hash(), real(NAN).hash());
  EXPECT_FALSE(real(NAN) == real(std::bit_cast<double>(0x7FF8000000000001)));
  EXPECT_FALSE(real(0.0) == real(-0.0));
  EXPECT_NE(real(0.0).hash(), real(-0.0).hash());
  const auto array = [](const Array& v) { return with("array", v); };
  float data[] = {1, NAN, 3, 4};
  const Array strided = Array::borrow(DType::kF32, data, {2, 2}, {1, 2});
  EXPECT_EQ(array(strided), array(strided.copy()));
  EXPECT_EQ(array(strided).hash(), array(strided.copy()).hash());
  EXPECT_FALSE(array(strided) == array(strided.reshaped({4})));
  const auto graph = [](GraphRef v) { return with("graph", std::move(v)); };
  EXPECT_EQ(graph(body(1)), graph(body(1)));
  EXPECT_EQ(graph(body(NAN)), graph(body(NAN)));
  EXPECT_EQ(graph(body(1)).hash(), graph(body(1)).hash());
  EXPECT_FALSE(graph(body(1)) == graph(body(2)));
  EXPECT_FALSE(graph(body(1)) == graph(nullptr));
  EXPECT_FALSE(graph(nullptr) == graph(body(1)));
  EXPECT_EQ(graph(nullptr), graph(nullptr));
}

TEST(Field, AttributesAreImmutable) {
  const Attrs a = with("number", int64_t(1));
  const std::vector<Attrs> copies{a};
  const Attrs b = a.with("number", int64_t(2));
  EXPECT_EQ(a.as<AllAttrs>().number, 1);
  EXPECT_EQ(b.as<AllAttrs>().number, 2);
  EXPECT_EQ(copies[0], a);
  EXPECT_EQ(copies[0].get(), a.get());
  EXPECT_EQ(Attrs(), Attrs());
  EXPECT_FALSE(a == Attrs());
  EXPECT_FALSE(Attrs::of(toy::kAdd.fields, NoAttrs{}) == a);
}

}  // namespace
}  // namespace rlx
