// A handful of ops that exercise every kind of attribute, independent of the real op table.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "rlx/base/error.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/leaf.h"
#include "rlx/ir/op.h"
#include "tests/unit/test_util.h"

namespace rlx::toy {

enum class Mode { kPlain, kNone, kOdd };

struct AllAttrs {
  bool flag = false;
  int64_t number = 7;
  double real = 0.5;
  std::string text;
  DType dtype = DType::kF32;
  std::vector<int64_t> ints;
  Dim dim;
  Shape shape;
  Array array;
  GraphRef graph;
  Mode mode = Mode::kPlain;
  std::optional<bool> maybe_flag;
  std::optional<int64_t> maybe_number = 3;
  std::optional<double> maybe_real;
  std::optional<std::string> maybe_text;
  std::optional<DType> maybe_dtype;
  std::optional<std::vector<int64_t>> maybe_ints;
  std::optional<Dim> maybe_dim;
  std::optional<Shape> maybe_shape;
  std::optional<Array> maybe_array;
  std::optional<Mode> maybe_mode;
};
struct TopAttrs {
  int64_t k = 1;
  int64_t axis = -1;
};
struct BodyAttrs {
  GraphRef body;
};

}  // namespace rlx::toy

RLX_ENUM(rlx::toy::Mode, "Plain", "none", "an odd \"name\"");

namespace rlx::toy {

inline std::vector<TensorType> infer_first(const InferContext& c) {
  if (c.operands.empty()) user_error("expected an operand");
  return {c[0]};
}
inline std::vector<TensorType> infer_add(const InferContext& c) {
  if (c.operands.size() != 2) user_error("expected 2 operands, got {}", c.operands.size());
  return {{promote(c[0].dtype, c[1].dtype), broadcast(c[0].shape, c[1].shape)}};
}
inline Attrs normalize_top(const InferContext& c) {
  if (c.operands.empty()) return c.attrs;
  return c.attrs.with("axis", normalize_axis(c.as<TopAttrs>().axis, c[0].shape.rank()));
}
inline std::vector<TensorType> infer_top(const InferContext& c) {
  if (c.operands.size() != 1) user_error("expected 1 operand");
  const auto& a = c.as<TopAttrs>();
  Shape s = c[0].shape;
  s[a.axis] = Dim(a.k);
  return {{c[0].dtype, s}, {DType::kI64, s}};
}
inline std::vector<TensorType> infer_body(const InferContext& c) {
  const GraphRef& body = c.as<BodyAttrs>().body;
  if (!body) user_error("the body is missing");
  std::vector<TensorType> types;
  for (const Output& o : body->outputs()) types.push_back(body->type(o.value));
  return types;
}

inline const OpDef kInput{.name = "Input",
                          .fields = RLX_FIELDS(InputAttrs, name, dtype, shape),
                          .flags = kLeaf,
                          .infer = [](const InferContext& c) -> std::vector<TensorType> {
                            return {{c.as<InputAttrs>().dtype, c.as<InputAttrs>().shape}};
                          }};
inline const OpDef kParam{.name = "Param",
                          .fields = RLX_FIELDS(ParamAttrs, name, dtype, shape, is_mutable),
                          .flags = kLeaf,
                          .infer = [](const InferContext& c) -> std::vector<TensorType> {
                            return {{c.as<ParamAttrs>().dtype, c.as<ParamAttrs>().shape}};
                          }};
inline const OpDef kConstant{
    .name = "Constant",
    .fields = RLX_FIELDS(ConstantAttrs, value, shape, splat),
    .flags = kLeaf,
    .infer = [](const InferContext& c) -> std::vector<TensorType> {
      return {{c.as<ConstantAttrs>().value.dtype(), c.as<ConstantAttrs>().shape}};
    }};
inline const OpDef kAdd{.name = "Add", .fields = RLX_FIELDS(NoAttrs), .infer = infer_add};
inline const OpDef kAll{
    .name = "All",
    .fields = RLX_FIELDS(AllAttrs, flag, number, real, text, dtype, ints, dim, shape, array, graph,
                         mode, maybe_flag, maybe_number, maybe_real, maybe_text, maybe_dtype,
                         maybe_ints, maybe_dim, maybe_shape, maybe_array, maybe_mode),
    .infer = infer_first};
inline const OpDef kTop{.name = "Top",
                        .fields = RLX_FIELDS(TopAttrs, k, axis),
                        .infer = infer_top,
                        .normalize = normalize_top};
inline const OpDef kBody{
    .name = "Body", .fields = RLX_FIELDS(BodyAttrs, body), .infer = infer_body};
inline const OpDef kSink{.name = "Sink",
                         .fields = RLX_FIELDS(NoAttrs),
                         .infer = [](const InferContext&) { return std::vector<TensorType>(); }};

inline const OpDef* lookup(std::string_view name) {
  for (const OpDef* op : {&kInput, &kParam, &kConstant, &kAdd, &kAll, &kTop, &kBody, &kSink}) {
    if (op->name == name) return op;
  }
  return nullptr;
}

inline Value input(Builder& b, std::string name, DType t, Shape s) {
  return b.op(kInput, InputAttrs{std::move(name), t, std::move(s)}, {});
}
inline Value param(Builder& b, std::string name, DType t, Shape s, bool is_mutable) {
  return b.op(kParam, ParamAttrs{std::move(name), t, std::move(s), is_mutable}, {});
}
inline Value constant(Builder& b, const Array& value) {
  return b.op(kConstant, ConstantAttrs{value, value.type().shape, false}, {});
}
inline Value all(Builder& b, Value x, AllAttrs attrs) { return b.op(kAll, std::move(attrs), {x}); }

// An array of `shape` whose bytes count up: NaN, infinities and subnormals among them.
inline Array counting(DType t, Dims shape) {
  Array a = Array::uninitialized(t, std::move(shape));
  auto* p = static_cast<uint8_t*>(a.mutable_raw());
  for (int64_t i = 0; i < a.byte_size(); ++i) {
    p[i] = t == DType::kBool ? uint8_t(i % 3 == 0) : uint8_t(i * 37 + 11);
  }
  return a;
}

// A graph with every kind of attribute, bodies, several results, outputs and updates.
inline Graph rich_graph() {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  Graph g("rich");
  Builder b(g);
  const Dim n = Dim::symbol("n");
  const Value x = input(b, "x", DType::kF32, {n, Dim(64)});
  const Value w = param(b, "a \"w\"\n\\\x01 \xC3\xA9", DType::kF32, {n, Dim(64)}, true);
  b.set_label("sum // of both\nlines");
  const Value y = b.op(kAdd, NoAttrs{}, {x, w});
  b.set_label("");
  const auto top = b.call(kTop, Attrs::of(kTop.fields, TopAttrs{5, -1}), {y});
  AllAttrs a;
  a.flag = true;
  a.number = std::numeric_limits<int64_t>::min();
  a.real = -0.0;
  a.text = std::string("NUL \0 and quotes \" \\ \r\t", 23);
  a.dtype = DType::kBF16;
  a.ints = {1, -2, std::numeric_limits<int64_t>::max()};
  a.dim = floor_div(Dim(3) * n * n - Dim(2), 4) * n - Dim(1);
  a.shape = {n, floor_div(n + Dim(1), 2), Dim(3)};
  a.array = Array::from<float>({1.5f, -0.0f, 1e-45f, 3.4028235e38f, INFINITY}, {5});
  a.mode = Mode::kOdd;
  a.maybe_flag = false;
  a.maybe_number = std::nullopt;
  a.maybe_real = kNan;
  a.maybe_text = "none";
  a.maybe_dtype = DType::kF32;
  a.maybe_ints = std::vector<int64_t>();
  a.maybe_dim = Dim::symbol("none");
  a.maybe_shape = Shape();
  a.maybe_array = Array();
  a.maybe_mode = Mode::kNone;
  const Value z = all(b, top[1], a);
  for (int t = 0; t < kNumDTypes; ++t) {
    constant(b, counting(DType(t), {3, 2}));
    constant(b, counting(DType(t), {5, 13}));
    constant(b, counting(DType(t), {0, 4}));
    constant(b, counting(DType(t), {}));
  }
  Graph inner("a body");
  Builder ib(inner);
  const Value i = input(ib, "i", DType::kI32, {});
  inner.add_output("o", ib.op(kAdd, NoAttrs{}, {i, i}));
  Graph outer("outer");
  Builder ob(outer);
  const auto inner_ref = std::make_shared<const Graph>(inner);
  outer.add_output("p", ob.op(kBody, BodyAttrs{inner_ref}, {}));
  outer.add_output("q", input(ob, "unused", DType::kC64, {n}));
  const auto body =
      b.call(kBody, Attrs::of(kBody.fields, BodyAttrs{std::make_shared<const Graph>(outer)}), {x});
  b.call(kSink, Attrs::of(kSink.fields, NoAttrs{}), {body[1], z});
  g.add_output("values", top[0]);
  g.add_output("", body[1]);
  g.add_output("again", top[0]);
  g.add_update("a \"w\"\n\\\x01 \xC3\xA9", y);
  return g;
}

}  // namespace rlx::toy
