#include "rlx/ir/rewrite.h"
#include "rlx/ops/build.h"
#include "rlx/ops/control_rules.h"
#include "rlx/ops/derive.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(If);

namespace {

std::vector<TensorType> infer_if(const InferContext& c) {
  if (c.operands.empty()) user_error("expected a predicate, got no operand");
  const auto& a = c.as<IfAttrs>();
  if (c[0] != TensorType{DType::kBool, {}}) {
    user_error("the predicate must be bool[], it is {}", c[0].to_string());
  }
  check_body(a.then_branch, "then branch", c.operands.subspan(1));
  check_body(a.else_branch, "else branch", c.operands.subspan(1));
  std::vector<TensorType> results = output_types(*a.then_branch);
  const std::vector<TensorType> other = output_types(*a.else_branch);
  if (results.empty()) user_error("the then branch has no outputs");
  if (results.size() != other.size()) {
    user_error("the then branch has {} outputs, the else branch {}", results.size(), other.size());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] == other[i]) continue;
    user_error("output {} of the then branch is {}, that of the else branch {}", i,
               results[i].to_string(), other[i].to_string());
  }
  return results;
}

std::vector<Value> call_if(Builder& b, IfAttrs attrs, std::span<const Value> operands) {
  return b.call(kIfOp, Attrs::of(kIfOp.fields, std::move(attrs)), operands);
}

// Both branches with tangents of the captures; a result has one if it does in either branch.
std::vector<Value> jvp_if(Builder& b, const RuleCall& call, std::span<const Value> tangents) {
  const auto& a = call.as<IfAttrs>();
  const auto captures = call.operands.subspan(1);
  const Mask with_tangent = valid_ones(tangents.subspan(1));
  const std::vector<Value> operands =
      joined(call.operands, pick(tangents.subspan(1), positions(with_tangent)));
  BodyWriter then_body("then"), else_body("else");
  const auto push = [&](BodyWriter& body, const Graph& branch) {
    const std::vector<Value> in = body.add_inputs(types_of(b, std::span(operands).subspan(1)));
    const auto primals = std::span(in).first(captures.size());
    const auto packed = std::span(in).subspan(captures.size());
    return push_forward(body.builder(), branch, duals_of(primals, spread(packed, with_tangent)));
  };
  const std::vector<Dual> in_then = push(then_body, *a.then_branch);
  const std::vector<Dual> in_else = push(else_body, *a.else_branch);
  Mask result_has(in_then.size(), 0);
  for (size_t i = 0; i < in_then.size(); ++i) {
    result_has[i] = in_then[i].tangent.valid() || in_else[i].tangent.valid();
  }
  const auto finish = [&](BodyWriter& body, const std::vector<Dual>& duals) {
    for (const Dual& d : duals) body.add_output(d.primal);
    for (size_t i : positions(result_has)) {
      const Dual& d = duals[i];
      body.add_output(d.tangent.valid() ? d.tangent : zeros_like(body.builder(), d.primal));
    }
    return body.take();
  };
  const GraphRef then_branch = finish(then_body, in_then), else_branch = finish(else_body, in_else);
  const std::vector<Value> all = call_if(b, {then_branch, else_branch}, operands);
  const auto primals = std::span(all).first(result_has.size());
  return joined(primals, spread(std::span(all).subspan(result_has.size()), result_has));
}

std::vector<Value> vjp_if(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  const auto& a = call.as<IfAttrs>();
  const std::vector<TensorType> captures = types_of(b, call.operands.subspan(1));
  const std::vector<size_t> wrt = differentiable_positions(captures);
  const std::vector<size_t> of = positions(valid_ones(cotangents));
  const std::vector<Value> grads =
      call_if(b, {pullback(*a.then_branch, wrt, of), pullback(*a.else_branch, wrt, of)},
              joined(call.operands, pick(cotangents, of)));
  std::vector<Value> result(call.operands.size());
  for (size_t i = 0; i < wrt.size(); ++i) result[1 + wrt[i]] = grads[i];
  return result;
}

std::vector<Value> batch_if(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                            const Dim& size) {
  const auto& a = call.as<IfAttrs>();
  const auto captures = call.operands.subspan(1);
  const auto of_captures = batched.subspan(1);
  if (!batched[0]) {
    const auto batch_branch = [&](const Graph& branch) {
      BodyWriter body(branch.name());
      const std::vector<Value> in = body.add_inputs(types_of(b, captures));
      for (const Lane& l : batch_graph(body.builder(), branch, size, lanes_of(in, of_captures))) {
        body.add_output(with_batch(body.builder(), l.value, l.batched, size));
      }
      return body.take();
    };
    return call_if(b, {batch_branch(*a.then_branch), batch_branch(*a.else_branch)}, call.operands);
  }
  const std::vector<Lane> lanes = lanes_of(captures, of_captures);
  const std::vector<Lane> in_then = batch_graph(b, *a.then_branch, size, lanes);
  const std::vector<Lane> in_else = batch_graph(b, *a.else_branch, size, lanes);
  std::vector<Value> results;
  for (size_t i = 0; i < in_then.size(); ++i) {
    results.push_back(select_lanes(b, call.operands[0],
                                   with_batch(b, in_then[i].value, in_then[i].batched, size),
                                   with_batch(b, in_else[i].value, in_else[i].batched, size)));
  }
  return results;
}

}  // namespace

RLX_DEFINE_OP(If) = {
    .name = "If",
    .fields = RLX_FIELDS(IfAttrs, then_branch, else_branch),
    .flags = kControl,
    .doc =
        R"(The outputs of one of two graphs, chosen at run time; only the chosen one runs.
Operands: predicate, bool []; captures, any number of tensors of any dtype. Attributes: then_branch,
else_branch, graphs without params and updates whose inputs are the captures in their order. Results:
the outputs of the chosen branch; both branches give the same number and types, at least one.
Errors: a predicate that is not a bool scalar; a branch that is missing, has params or updates, or
takes other inputs; outputs that differ in number or type.
Derivative: that of the chosen branch, which alone is evaluated. Batching: with one predicate for all
lanes the branches are batched; with one per lane both branches run for all lanes and Where chooses,
so errors of either branch are errors of the call.)",
    .infer = infer_if,
    .jvp = jvp_if,
    .vjp = vjp_if,
    .batching = batch_if,
};

}  // namespace rlx
