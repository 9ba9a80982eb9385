#include "rlx/ops/custom.h"

#include "rlx/base/error.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/build.h"
#include "rlx/ops/control_rules.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/derive.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Custom);
RLX_USE_OP(Scan);

namespace {

using Types = std::vector<TensorType>;

// --- Inference

Types infer_custom(const InferContext& c) {
  const auto& a = c.as<CustomAttrs>();
  if (a.name.empty()) user_error("the operator has no name");
  if (a.results.empty()) user_error("'{}' has no results", a.name);
  for (const TensorType& t : a.results) {
    for (const Dim& d : t.shape) {
      if (d.is_static() && d.value() < 0) {
        user_error("'{}' has a result with a negative size: {}", a.name, t.to_string());
      }
    }
    t.shape.num_elements();  // checks the product
  }
  if (a.no_gradient && (a.vjp || a.jvp)) {
    user_error("'{}' has derivatives and says that they are zero (no_gradient)", a.name);
  }
  check_rule_graph(a.vjp, "vjp", c.operands, a.results, RuleMode::kVjp);
  check_rule_graph(a.jvp, "jvp", c.operands, a.results, RuleMode::kJvp);
  return a.results;
}

// --- Derivatives

// A rule is linear in the derivatives that it takes: its transpose is the other rule.
GraphRef transposed(const Graph& rule, size_t primals) {
  std::vector<size_t> wrt, of;
  for (size_t i = primals; i < rule.inputs().size(); ++i) wrt.push_back(i);
  for (size_t i = 0; i < rule.outputs().size(); ++i) of.push_back(i);
  return pullback(rule, wrt, of);
}

// `from` are the values whose derivatives are given, `to` those whose derivatives are wanted.
std::vector<Value> derive(Builder& b, const RuleCall& call, std::span<const Value> from,
                          std::span<const Value> derivatives, std::span<const Value> to,
                          const GraphRef& rule, const GraphRef& other, std::string_view missing) {
  const auto& a = call.as<CustomAttrs>();
  if (a.no_gradient) return std::vector<Value>(to.size());
  if (!rule && !other) {
    fail(ErrorKind::kUnsupported,
         "Custom '{}' is not differentiable: it has no {}; give its definition a vjp or a jvp, or "
         "set no_gradient if its derivatives are zero",
         a.name, missing);
  }
  const std::vector<Value> given = pack_derivatives(b, from, derivatives);
  std::vector<Value> arguments = joined(call.operands, call.results);
  if (rule) {
    arguments = joined(arguments, given);
    return unpack_derivatives(b, to, inline_graph(b, *rule, arguments));
  }
  const size_t primals = arguments.size();
  const std::vector<Value> zeros = pack_derivatives(b, to, std::vector<Value>(to.size()));
  arguments = joined(arguments, zeros, given);
  return unpack_derivatives(b, to, inline_graph(b, *transposed(*other, primals), arguments));
}

std::vector<Value> vjp_custom(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  const auto& a = call.as<CustomAttrs>();
  return derive(b, call, call.results, cotangents, call.operands, a.vjp, a.jvp, "vjp");
}

std::vector<Value> jvp_custom(Builder& b, const RuleCall& call, std::span<const Value> tangents) {
  const auto& a = call.as<CustomAttrs>();
  return derive(b, call, call.operands, tangents, call.results, a.jvp, a.vjp, "jvp");
}

// --- Batching

GraphRef batched_rule(const GraphRef& rule, const Dim& size) {
  if (!rule) return nullptr;
  BodyWriter body(rule->name());
  Builder& b = body.builder();
  std::vector<Lane> lanes;
  for (Value v : rule->inputs())
    lanes.push_back({body.add_input(stacked(rule->type(v), size)), true});
  for (const Lane& lane : batch_graph(b, *rule, size, lanes)) {
    body.add_output(with_batch(b, lane.value, lane.batched, size));
  }
  return body.take();
}

std::vector<Value> batch_as_leading(Builder& b, const RuleCall& call,
                                    std::span<const uint8_t> batched, const Dim& size) {
  CustomAttrs a = call.as<CustomAttrs>();
  for (TensorType& t : a.results) t = stacked(std::move(t), size);
  a.vjp = batched_rule(a.vjp, size);
  a.jvp = batched_rule(a.jvp, size);
  std::vector<Value> operands;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    operands.push_back(with_batch(b, call.operands[i], batched[i] != 0, size));
  }
  return b.call(kCustomOp, Attrs::of(kCustomOp.fields, std::move(a)), operands);
}

std::vector<Value> batch_as_loop(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                                 const Dim& size) {
  std::vector<Value> captures, xs;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    (batched[i] ? xs : captures).push_back(call.operands[i]);
  }
  BodyWriter body(call.as<CustomAttrs>().name);
  body.add_input({DType::kI64, {}});
  const std::vector<Value> shared = body.add_inputs(types_of(b, captures));
  std::vector<Value> slices;
  slices.reserve(xs.size());
  for (Value v : xs) slices.push_back(body.add_input(slice_of(b.type(v))));
  std::vector<Value> operands;
  size_t next_shared = 0, next_slice = 0;
  for (uint8_t is_batched : batched) {
    operands.push_back(is_batched ? slices[next_slice++] : shared[next_shared++]);
  }
  body.add_outputs(body.builder().call(kCustomOp, call.attrs, operands));
  ScanAttrs scan;
  scan.num_captures = int64_t(captures.size());
  scan.length = size;
  scan.body = body.take();
  return b.call(kScanOp, Attrs::of(kScanOp.fields, std::move(scan)), joined(captures, xs));
}

std::vector<Value> batch_custom(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                                const Dim& size) {
  const auto& a = call.as<CustomAttrs>();
  switch (a.batching) {
    case CustomBatching::kLeadingAxes:
      return batch_as_leading(b, call, batched, size);
    case CustomBatching::kLoop:
      return batch_as_loop(b, call, batched, size);
    case CustomBatching::kNone:
      break;
  }
  fail(ErrorKind::kUnsupported,
       "Custom '{}' cannot be batched: its definition has to say LeadingAxes or Loop", a.name);
}

// --- Building

// A rule of the definition as a graph: for the operands and results of a call.
GraphRef rule_graph(const CustomDefinition& definition, const CustomDefinition::Rule& rule,
                    std::string_view what, const Types& operands, const CustomAttrs& a,
                    bool reverse) {
  if (!rule) return nullptr;
  BodyWriter body(fmt::format("{}_{}", a.name, what));
  const std::vector<Value> ins = body.add_inputs(operands), outs = body.add_inputs(a.results);
  const Types& from = reverse ? a.results : operands;
  std::vector<Value> derivatives;
  for (size_t i : differentiable_positions(from)) derivatives.push_back(body.add_input(from[i]));
  std::vector<Value> given =
      rule(body.builder(), CustomRuleCall{a.attributes, ins, outs, derivatives});
  const std::vector<size_t> wanted = differentiable_positions(reverse ? operands : a.results);
  if (given.size() != wanted.size()) {
    user_error("Custom '{}': its {} gave {} values for {} differentiable {}", definition.name, what,
               given.size(), wanted.size(), reverse ? "operands" : "results");
  }
  for (size_t i = 0; i < given.size(); ++i) {
    const Value of = (reverse ? ins : outs)[wanted[i]];
    if (!given[i].valid()) given[i] = zeros_like(body.builder(), of);
  }
  body.add_outputs(given);
  return body.take();
}

}  // namespace

std::vector<Value> custom(Builder& b, const CustomDefinition& definition,
                          std::span<const Value> operands, std::string attributes) {
  CustomAttrs a;
  a.name = definition.name;
  a.attributes = std::move(attributes);
  a.no_gradient = definition.no_gradient;
  a.batching = definition.batching;
  const Types types = types_of(b, operands);
  if (!definition.infer) user_error("Custom '{}': its definition has no inference", a.name);
  try {
    a.results = definition.infer(types, a.attributes);
  } catch (const Error& e) {
    throw e.with_context(fmt::format("Custom '{}'", a.name));
  }
  a.vjp = rule_graph(definition, definition.vjp, "vjp", types, a, true);
  a.jvp = rule_graph(definition, definition.jvp, "jvp", types, a, false);
  return b.call(kCustomOp, Attrs::of(kCustomOp.fields, std::move(a)), operands);
}

RLX_DEFINE_OP(Custom) = {
    .name = "Custom",
    .fields = RLX_FIELDS(CustomAttrs, name, attributes, results, vjp, jvp, no_gradient, batching),
    .doc =
        R"(A call of an operator that the program brings along, by its name.
Operands: any number, of any dtype and shape. Attributes: name; attributes, bytes that only the kernel
reads; results, the types of the results, at least one; vjp, jvp, no_gradient and batching, see below.
The kernel is registered with the Session that compiles the graph, for one device: a name that is
not registered is an error of compiling, and so is a kernel that refuses the call. It must be a
function of operands and attributes: equal calls may be merged, unused ones dropped. Whatever the
kernel throws is an error of the run with op and label in front.
Derivative: vjp and jvp are graphs over [operands, results, cotangents of the differentiable results]
and [operands, results, tangents of the differentiable operands]; they give the cotangents of the
differentiable operands, and the tangents of the differentiable results. Each is linear in the
derivatives that it takes, so one of them is enough: the other is its transpose. Without both a call
cannot be differentiated, unless no_gradient says that the derivatives are zero.
Batching: LeadingAxes, the kernel is called once with a leading axis on all operands and results;
Loop, a Scan calls it for each lane; None, an error.
Errors: no name or no results; no_gradient together with a rule; a rule with params, updates, or
other inputs or outputs.)",
    .infer = infer_custom,
    .jvp = jvp_custom,
    .vjp = vjp_custom,
    .batching = batch_custom,
    // Only the kernel knows its arithmetic.
    .cost =
        [](const CostContext& c) {
          return Cost{0, io_bytes(c)};
        },
};

}  // namespace rlx
