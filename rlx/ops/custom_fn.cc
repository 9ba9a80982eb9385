#include "rlx/ops/custom_fn.h"

#include "rlx/ir/packed.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/build.h"
#include "rlx/ops/control_rules.h"
#include "rlx/ops/derive.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/loops.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(CustomFn);

namespace {

using Types = std::vector<TensorType>;

Types infer_custom_fn(const InferContext& c) {
  const auto& a = c.as<CustomFnAttrs>();
  check_body(a.forward, "forward graph", c.operands);
  Types results = output_types(*a.forward);
  if (results.empty()) user_error("the forward graph has no outputs");
  check_rule_graph(a.vjp, "vjp graph", c.operands, results, RuleMode::kVjp);
  check_rule_graph(a.jvp, "jvp graph", c.operands, results, RuleMode::kJvp);
  return results;
}

std::vector<Value> expand_custom_fn(Builder& b, const Attrs& attrs,
                                    std::span<const Value> operands) {
  return inline_graph(b, *attrs.as<CustomFnAttrs>().forward, operands);
}

std::vector<Value> vjp_custom_fn(Builder& b, const RuleCall& call,
                                 std::span<const Value> cotangents) {
  const auto& a = call.as<CustomFnAttrs>();
  const std::vector<Value> given = pack_derivatives(b, call.results, cotangents);
  if (a.vjp) {
    const std::vector<Value> values = joined(call.operands, call.results, given);
    return unpack_derivatives(b, call.operands, inline_graph(b, *a.vjp, values));
  }
  const GraphRef reverse =
      pullback(*a.forward, differentiable_positions(types_of(b, call.operands)),
               differentiable_positions(types_of(b, call.results)));
  return unpack_derivatives(b, call.operands,
                            inline_graph(b, *reverse, joined(call.operands, given)));
}

std::vector<Value> jvp_custom_fn(Builder& b, const RuleCall& call,
                                 std::span<const Value> tangents) {
  const auto& a = call.as<CustomFnAttrs>();
  if (a.jvp) {
    const std::vector<Value> given = pack_derivatives(b, call.operands, tangents);
    const std::vector<Value> values = joined(call.operands, call.results, given);
    return unpack_derivatives(b, call.results, inline_graph(b, *a.jvp, values));
  }
  std::vector<Value> out;
  for (const Dual& d : push_forward(b, *a.forward, duals_of(call.operands, tangents))) {
    out.push_back(d.tangent);
  }
  return out;
}

// --- Batching: each graph by itself, so that the rules stay

// One of the graphs over lanes; `batched` says which inputs have the batch axis. An output that is
// shared by all lanes is their sum: the cotangent of a shared operand.
GraphRef batch_one(const GraphRef& graph, const Mask& batched, const Mask& shared_outputs,
                   const Dim& size) {
  if (!graph) return nullptr;
  BodyWriter body(graph->name());
  Builder& b = body.builder();
  std::vector<Lane> in;
  for (size_t i = 0; i < graph->inputs().size(); ++i) {
    const TensorType& own = graph->type(graph->inputs()[i]);
    in.push_back({body.add_input(batched[i] ? stacked(own, size) : own), batched[i] != 0});
  }
  const std::vector<Lane> out = batch_graph(b, *graph, size, in);
  for (size_t i = 0; i < out.size(); ++i) {
    const Value v = with_batch(b, out[i].value, out[i].batched, size);
    body.add_output(shared_outputs[i] ? sum(b, v, {0}) : v);
  }
  return body.take();
}

std::vector<Value> batch_custom_fn(Builder& b, const RuleCall& call,
                                   std::span<const uint8_t> batched, const Dim& size) {
  const auto& a = call.as<CustomFnAttrs>();
  Types operands;
  for (Value v : a.forward->inputs()) operands.push_back(a.forward->type(v));
  const Types results = output_types(*a.forward);
  const std::vector<size_t> of_operands = differentiable_positions(operands);
  const size_t of_results = differentiable_positions(results).size();
  const Mask forward(batched.begin(), batched.end());
  Mask reverse = forward;  // results and their cotangents all have the axis
  reverse.resize(forward.size() + results.size(), 1);
  Mask tangent = reverse;
  reverse.resize(reverse.size() + of_results, 1);
  Mask shared;  // operands without the axis have cotangents without it
  for (size_t i : of_operands) {
    tangent.push_back(forward[i]);
    shared.push_back(!forward[i]);
  }
  CustomFnAttrs next;
  next.forward = batch_one(a.forward, forward, Mask(results.size(), 0), size);
  next.vjp = batch_one(a.vjp, reverse, shared, size);
  next.jvp = batch_one(a.jvp, tangent, Mask(of_results, 0), size);
  return b.call(kCustomFnOp, Attrs::of(kCustomFnOp.fields, std::move(next)), call.operands);
}

}  // namespace

RLX_DEFINE_OP(CustomFn) = {
    .name = "CustomFn",
    .fields = RLX_FIELDS(CustomFnAttrs, forward, vjp, jvp),
    .flags = kPackedRows,  // handed on to the graphs
    .doc =
        R"(The outputs of a graph, with derivatives of one's own.
Operands: any tensors. Attributes: graphs without params and updates, bound by position. forward takes
the operands and gives the results. vjp, optional, takes operands, results and a cotangent for each
result that is a float or complex, and gives a cotangent for each operand that is. jvp, optional, takes
operands, results and a tangent for each such operand, and gives a tangent for each such result. A mode
without a graph differentiates forward.
Results: the outputs of forward, at least one. The compiler puts forward in place of the call.
Errors: a graph that is missing, has params or updates, or has inputs or outputs of other types.
Derivative: as given; it is for the caller to see that the modes agree. Of second order: that of the
given graphs. Batching: of each graph, so that the given derivatives stay.)",
    .infer = infer_custom_fn,
    .decompose = {.expand = expand_custom_fn},
    .jvp = jvp_custom_fn,
    .vjp = vjp_custom_fn,
    .batching = batch_custom_fn,
};

std::vector<Value> custom_fn(Builder& b, GraphRef forward, GraphRef vjp, GraphRef jvp,
                             std::span<const Value> operands) {
  return b.call(kCustomFnOp,
                Attrs::of(kCustomFnOp.fields,
                          CustomFnAttrs{std::move(forward), std::move(vjp), std::move(jvp)}),
                operands);
}

}  // namespace rlx
