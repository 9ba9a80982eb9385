#include "rlx/ops/elementwise_region.h"

#include "rlx/ir/leaf.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cast.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Binary);
RLX_USE_OP(Cast);
RLX_USE_OP(Compare);
RLX_USE_OP(ElementwiseRegion);
RLX_USE_OP(Fma);
RLX_USE_OP(Where);

namespace {

bool is_half(DType t) { return is_float(t) && size_of(t) < 4; }

bool is_scalar_body(const Graph& body) {
  if (!body.params().empty() || !body.updates().empty()) return false;
  const std::vector<uint8_t> live = live_nodes(body);
  for (uint32_t id = 0; id < body.size(); ++id) {
    const Node& n = body.node(id);
    if (!is_signature_leaf(n) && (!live[id] || !fits_in_region(n))) return false;
    for (const TensorType& t : n.results) {
      if (t.shape.rank() != 0) return false;
    }
  }
  for (size_t i = 0; i < body.inputs().size(); ++i) {
    if (body.name_of(body.inputs()[i]) != fmt::format("in{}", i)) return false;
  }
  for (size_t i = 0; i < body.outputs().size(); ++i) {
    if (body.outputs()[i].name != fmt::format("out{}", i)) return false;
  }
  return !body.outputs().empty();
}

Value scalar_constant(Builder& b, const Node& n) {
  const auto& c = n.attrs.as<ConstantAttrs>();
  return b.call(*n.op, Attrs::of(n.attrs.table(), ConstantAttrs{c.value, {}, true}), {})[0];
}

[[noreturn]] void refuse_node(const Node& n) {
  if (is_constant(n)) {
    user_error(
        "a constant of the body has the type {}: only one element repeats, others are operands",
        n.results[0].to_string());
  }
  user_error("{} cannot stand in the body: only elementwise kinds with one result can", n.op->name);
}

// The nodes of a body on other operands: `node` makes the value of each that is no input.
template <class F>
std::vector<Value> replay(const Graph& body, std::span<const Value> inputs, F node) {
  std::vector<Value> values(body.size());
  const std::vector<uint8_t> live = live_nodes(body);
  size_t next = 0;
  std::vector<Value> operands;
  for (uint32_t id = 0; id < body.size(); ++id) {
    const Node& n = body.node(id);
    if (is_signature_leaf(n)) {
      values[id] = inputs[next++];
      continue;
    }
    if (!live[id]) continue;
    operands.clear();
    for (Value v : n.operands) operands.push_back(values[v.node]);
    values[id] = node(n, operands);
  }
  std::vector<Value> outputs;
  for (const Output& o : body.outputs()) outputs.push_back(values[o.value.node]);
  return outputs;
}

// A body from the nodes of another.
template <class Input, class F>
GraphRef rebuild(const Graph& body, Input input_of, F node) {
  auto out = std::make_shared<Graph>("body");
  Builder b(*out);
  std::vector<Value> inputs;
  for (size_t i = 0; i < body.inputs().size(); ++i) {
    const Value in = input(b, fmt::format("in{}", i), body.type(body.inputs()[i]).dtype, {});
    inputs.push_back(input_of(b, in));
  }
  const std::vector<Value> outputs =
      replay(body, inputs,
             [&](const Node& n, std::span<const Value> operands) { return node(b, n, operands); });
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Value v = cast(b, outputs[i], body.type(body.outputs()[i].value).dtype);
    out->add_output(fmt::format("out{}", i), v);
  }
  return out;
}

Attrs normalize_region(const InferContext& c) {
  const auto& a = c.as<ElementwiseRegionAttrs>();
  if (!a.body) return c.attrs;  // infer says that it is missing
  GraphRef normal = scalar_body(a.body);
  return normal == a.body ? c.attrs : c.attrs.with("body", std::move(normal));
}

std::vector<TensorType> infer_region(const InferContext& c) {
  const auto& a = c.as<ElementwiseRegionAttrs>();
  if (!a.body) user_error("the body is missing");
  const Graph& body = *a.body;
  expect_operands(c, body.inputs().size());
  Shape shape;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const DType expected = body.type(body.inputs()[i]).dtype;
    if (c[i].dtype != expected) {
      user_error("operand {} is {}, input {} of the body is {}", i, to_string(c[i].dtype), i,
                 to_string(expected));
    }
    shape = broadcast(shape, c[i].shape);
  }
  std::vector<TensorType> results;
  for (const Output& o : body.outputs()) results.push_back({body.type(o.value).dtype, shape});
  return results;
}

// Kinds whose operands broadcast by themselves.
bool broadcasts(const OpDef& op) {
  return &op == &kBinaryOp || &op == &kCompareOp || &op == &kWhereOp || &op == &kFmaOp;
}

Shape common_shape(const Builder& b, std::span<const Value> values) {
  Shape shape;
  for (Value v : values) shape = broadcast(shape, b.shape(v));
  return shape;
}

std::vector<Value> expand_region(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  const GraphRef body = rounding_body(attrs.as<ElementwiseRegionAttrs>());
  std::vector<Value> values = replay(*body, operands, [&](const Node& n, std::vector<Value> v) {
    if (v.size() > 1 && !broadcasts(*n.op)) {
      const Shape shape = common_shape(b, v);
      for (Value& x : v) x = expand_to(b, x, shape);
    }
    return b.call(*n.op, n.attrs, v)[0];
  });
  const Shape shape = common_shape(b, operands);
  for (Value& v : values) v = expand_to(b, v, shape);
  return values;
}

Cost cost_region(const CostContext& c) {
  const Graph& body = *c.attrs.as<ElementwiseRegionAttrs>().body;
  double flops = 0;
  for (const Node& n : body.nodes()) {
    if (n.op->has(kLeaf)) continue;
    std::vector<TensorType> types;
    for (Value v : n.operands) types.push_back(body.type(v));
    flops += cost_of(*n.op, {n.attrs, types, n.results}).flops;
  }
  return {flops * element_count(c.results[0]), io_bytes(c)};
}

}  // namespace

bool fits_in_region(const Node& node) {
  if (is_constant(node)) {
    const auto& c = node.attrs.as<ConstantAttrs>();
    return c.value.defined() && c.value.num_elements() == 1;
  }
  return node.op->has(kElementwise) && node.results.size() == 1 && node.op != &kElementwiseRegionOp;
}

GraphRef scalar_body(const GraphRef& body) {
  if (is_scalar_body(*body)) return body;
  if (!body->params().empty() || !body->updates().empty()) {
    user_error("the body has params or updates: what it reads are operands");
  }
  if (body->outputs().empty()) user_error("the body has no outputs");
  return rebuild(
      *body, [](Builder&, Value in) { return in; },
      [&](Builder& b, const Node& n, std::span<const Value> operands) {
        if (!fits_in_region(n)) refuse_node(n);
        return is_constant(n) ? scalar_constant(b, n) : b.call(*n.op, n.attrs, operands)[0];
      });
}

GraphRef widened_body(const GraphRef& body) {
  const auto widen = [](Builder& b, Value v) {
    return is_half(b.dtype(v)) ? cast(b, v, DType::kF32) : v;
  };
  return rebuild(*body, widen, [&](Builder& b, const Node& n, std::span<const Value> operands) {
    if (is_constant(n)) {
      const Array& value = n.attrs.as<ConstantAttrs>().value;
      if (is_half(value.dtype())) return scalar(b, DType::kF32, value.at(0));
      return scalar_constant(b, n);
    }
    if (n.op == &kCastOp) {
      return widen(b, cast(b, operands[0], n.attrs.as<CastAttrs>().to));
    }
    return widen(b, b.call(*n.op, n.attrs, operands)[0]);
  });
}

GraphRef rounding_body(const ElementwiseRegionAttrs& attrs) {
  bool half = false;
  for (const Node& n : attrs.body->nodes()) half |= is_half(n.results[0].dtype);
  return attrs.strict_rounding || !half ? attrs.body : widened_body(attrs.body);
}

RLX_DEFINE_OP(ElementwiseRegion) = {
    .name = "ElementwiseRegion",
    .fields = RLX_FIELDS(ElementwiseRegionAttrs, body, strict_rounding),
    .flags = kElementwise,
    .doc =
        R"((y0, y1, ...) = body(x0, x1, ...) element by element: a chain of elementwise ops as one.
Operands: one per input of the body, of its dtype; the shapes broadcast as in NumPy. Results: one per
output of the body, of its dtype; all have the broadcast shape.
The body holds elementwise kinds with one result, and constants of one element. Its shapes do not
matter: it is kept in a form in which every value is a scalar. Names of inputs and outputs are
positions.
Every node computes what it would outside, bit for bit. f16 and bf16 stay in f32 from node to node
and are rounded once at the results, and where the body has a Cast; with `strict_rounding` every
node's result is rounded, as outside.
Derivatives and batches: those of the nodes.
Errors: no body or one without outputs; params or updates in it; another kind of node; a constant of
several elements; operands of other number or dtypes than the body's inputs; shapes that do not
broadcast.)",
    .infer = infer_region,
    .normalize = normalize_region,
    .decompose = {.expand = expand_region},
    .batching = batch_elementwise,
    .cost = cost_region,
};

std::vector<Value> elementwise_region(Builder& b, GraphRef body, std::span<const Value> operands,
                                      bool strict_rounding) {
  const Attrs attrs = Attrs::of(kElementwiseRegionOp.fields,
                                ElementwiseRegionAttrs{std::move(body), strict_rounding});
  return b.call(kElementwiseRegionOp, attrs, operands);
}

}  // namespace rlx
