#include "rlx/ops/derive.h"

#include <algorithm>

#include "rlx/base/error.h"
#include "rlx/ir/leaf.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/body.h"
#include "rlx/ops/build.h"
#include "rlx/ops/rules.h"
#include "rlx/ops/table.h"

namespace rlx {
namespace {

bool is_half(DType t) { return is_float(t) && size_of(t) < 4; }

// A graph with one input per operand type; returns the inputs.
std::vector<Value> add_inputs(Builder& b, std::span<const TensorType> types) {
  std::vector<Value> inputs;
  for (size_t i = 0; i < types.size(); ++i) {
    inputs.push_back(input(b, fmt::format("arg{}", i), types[i].dtype, types[i].shape));
  }
  return inputs;
}

void add_outputs(Graph& g, std::span<const Value> values) {
  for (size_t i = 0; i < values.size(); ++i) g.add_output(fmt::format("out{}", i), values[i]);
}

// Operands of a derivative record are the forward's primals, then its cotangents.
Graph expand_derivative(const OpDef& op, const Attrs& attrs, std::span<const TensorType> operands) {
  const Decomposition& d = op.decompose;
  const OpDef& forward = *d.derivative_of;
  const Attrs forward_attrs = d.forward_attrs(attrs);
  // The number of cotangents is the number of the forward's results.
  size_t primals = operands.size();
  std::vector<TensorType> results;
  do {
    if (primals == 0) internal_error("{}: operands do not match {}", op.name, forward.name);
    results = infer_call(forward, forward_attrs, operands.first(--primals)).results;
  } while (primals + results.size() > operands.size());
  Graph decomposed = expand_to_graph(forward, forward_attrs, operands.first(primals));
  decomposed = expand_for_vjp(decomposed, decomposed.inputs());

  Graph out(std::string(op.name));
  Builder b(out);
  const std::vector<Value> inputs = add_inputs(b, operands);
  const auto arguments = std::span(inputs).first(primals);
  const std::vector<Value> values = inline_graph(b, decomposed, arguments);
  std::vector<Value> wrt;
  for (uint8_t i : d.wrt) wrt.push_back(arguments[i]);
  std::vector<Value> grads = reverse_sweep(b, values, std::span(inputs).subspan(primals), wrt);
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].valid()) grads[i] = zeros_like(b, wrt[i]);
  }
  add_outputs(out, grads);
  return out;
}

Graph expand_wide(const OpDef& op, const Attrs& attrs, std::span<const TensorType> operands) {
  if (op.decompose.derivative_of) return expand_derivative(op, attrs, operands);
  Graph out{std::string(op.name)};
  Builder b(out);
  // Rules see attributes in normal form, whoever asks.
  const Attrs normal = infer_call(op, attrs, operands).attrs;
  add_outputs(out, op.decompose.expand(b, normal, add_inputs(b, operands)));
  return out;
}

// A body fixes the dtypes of its inputs, so its rounding is the op's own business.
bool has_body(const OpDef& op) {
  return std::any_of(op.fields->fields.begin(), op.fields->fields.end(),
                     [](const Field& f) { return f.type == FieldType::kGraph; });
}

// Fused kinds are names: the storage of their weights stays, and their calls accumulate in f32.
bool is_fused_name(const OpDef& op) {
  const OpRow* row = find_row(op.name);
  return row && row->cls == RowClass::kAlias && row->family == "Fused";
}

}  // namespace

Graph expand_to_graph(const OpDef& op, const Attrs& attrs, std::span<const TensorType> operands) {
  if (!op.decompose)
    fail(ErrorKind::kUnsupported, "{} is a primitive: it has no decomposition", op.name);
  const bool half = std::any_of(operands.begin(), operands.end(),
                                [](const TensorType& t) { return is_half(t.dtype); });
  if (!half || has_body(op) || is_fused_name(op)) return expand_wide(op, attrs, operands);
  std::vector<TensorType> wide(operands.begin(), operands.end());
  for (TensorType& t : wide) {
    if (is_half(t.dtype)) t.dtype = DType::kF32;
  }
  const Graph inner = expand_wide(op, attrs, wide);
  const std::vector<TensorType> results = infer_call(op, attrs, operands).results;
  Graph out{std::string(op.name)};
  Builder b(out);
  std::vector<Value> inputs = add_inputs(b, operands);
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = cast(b, inputs[i], wide[i].dtype);
  std::vector<Value> values = inline_graph(b, inner, inputs);
  for (size_t i = 0; i < values.size(); ++i) values[i] = cast(b, values[i], results[i].dtype);
  add_outputs(out, values);
  return out;
}

std::vector<uint8_t> active_nodes(const Graph& graph, std::span<const Value> wrt) {
  std::vector<uint8_t> active(graph.size(), 0);
  for (Value v : wrt) active[v.node] = is_differentiable(graph.type(v).dtype);
  for (uint32_t id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (active[id] || n.op->has(kNoGradient)) continue;
    bool differentiable = false;
    for (const TensorType& t : n.results) differentiable |= is_differentiable(t.dtype);
    if (!differentiable) continue;
    for (Value v : n.operands) {
      if (active[v.node] && is_differentiable(graph.type(v).dtype)) active[id] = 1;
    }
  }
  return active;
}

Graph expand_for_vjp(const Graph& graph, std::span<const Value> wrt) {
  const std::vector<uint8_t> active = active_nodes(graph, wrt);
  uint32_t id = 0;
  // rewrite() walks the nodes in order but skips bound leaves, so the id is found by address.
  const NodeRewrite fn = [&](Builder& b, const Node& n,
                             std::span<const Value> operands) -> std::optional<std::vector<Value>> {
    while (&graph.node(id) != &n) ++id;
    if (!active[id] || n.op->vjp) return std::nullopt;
    if (!n.op->decompose) {
      fail(ErrorKind::kUnsupported,
           "{} is not differentiable: it has no derivative rule and no decomposition", n.op->name);
    }
    std::vector<TensorType> types;
    for (Value v : operands) types.push_back(b.type(v));
    const Graph body = expand_to_graph(*n.op, n.attrs, types);
    // All inputs count as active here; what is not active is simply not swept.
    std::vector<Value> inputs;
    for (size_t i = 0; i < n.operands.size(); ++i) {
      if (active[n.operands[i].node]) inputs.push_back(body.inputs()[i]);
    }
    return inline_graph(b, expand_for_vjp(body, inputs), operands);
  };
  return rewrite(graph, fn);
}

std::vector<Value> reverse_sweep(Builder& b, std::span<const Value> outputs,
                                 std::span<const Value> cotangents, std::span<const Value> wrt) {
  Graph& g = b.graph();
  const uint32_t end = uint32_t(g.size());
  const std::vector<uint8_t> active = active_nodes(g, wrt);
  std::vector<std::vector<Value>> cot(end);
  const auto accumulate = [&](Value v, Value c) {
    auto& slots = cot[v.node];
    if (slots.empty()) slots.resize(g.node(v.node).results.size());
    slots[v.index] = add_valid(b, slots[v.index], c);
  };
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (cotangents[i].valid() && active[outputs[i].node]) accumulate(outputs[i], cotangents[i]);
  }
  for (uint32_t id = end; id-- > 0;) {
    if (cot[id].empty() || !active[id]) continue;
    const Node& n = g.node(id);
    if (n.operands.empty() || n.op->has(kNoGradient)) continue;
    if (!n.op->vjp) internal_error("the reverse sweep met {}, which has no rule", n.op->name);
    std::vector<Value> results(n.results.size());
    for (size_t i = 0; i < results.size(); ++i) results[i] = {id, uint32_t(i)};
    b.set_label(n.label);
    const std::vector<Value> grads = n.op->vjp(b, {*n.op, n.attrs, n.operands, results}, cot[id]);
    if (grads.size() != n.operands.size()) {
      internal_error("the vjp of {} gave {} cotangents for {} operands", n.op->name, grads.size(),
                     n.operands.size());
    }
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i].valid() || !active[n.operands[i].node]) continue;
      if (g.type(grads[i]) != g.type(n.operands[i])) {
        internal_error("the vjp of {} gave {} for an operand of type {}", n.op->name,
                       g.type(grads[i]).to_string(), g.type(n.operands[i]).to_string());
      }
      accumulate(n.operands[i], grads[i]);
    }
  }
  std::vector<Value> result;
  for (Value v : wrt) {
    result.push_back(v.node < end && !cot[v.node].empty() ? cot[v.node][v.index] : Value{});
  }
  return result;
}

GraphRef pullback(const Graph& graph, std::span<const size_t> wrt, std::span<const size_t> of) {
  std::vector<Value> leaves;
  for (size_t i : wrt) leaves.push_back(graph.inputs()[i]);
  const Graph prepared = expand_for_vjp(graph, leaves);
  BodyWriter body("pullback");
  Builder& b = body.builder();
  std::vector<Value> arguments;
  for (Value v : prepared.inputs()) arguments.push_back(body.add_input(prepared.type(v)));
  std::vector<Value> cotangents;
  for (size_t i : of) {
    cotangents.push_back(body.add_input(prepared.type(prepared.outputs()[i].value)));
  }
  const std::vector<Value> results = inline_graph(b, prepared, arguments);
  std::vector<Value> outputs, inputs;
  for (size_t i : of) outputs.push_back(results[i]);
  for (size_t i : wrt) inputs.push_back(arguments[i]);
  const std::vector<Value> gradients = reverse_sweep(b, outputs, cotangents, inputs);
  for (size_t i = 0; i < gradients.size(); ++i) {
    body.add_output(gradients[i].valid() ? gradients[i] : zeros_like(b, inputs[i]));
  }
  return body.take();
}

}  // namespace rlx
