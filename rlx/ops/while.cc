#include "rlx/ir/rewrite.h"
#include "rlx/ops/build.h"
#include "rlx/ops/control_rules.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/reduce.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(While);
RLX_USE_OP(ScanBackward);

namespace {

std::vector<TensorType> infer_while(const InferContext& c) {
  const auto& a = c.as<WhileAttrs>();
  if (a.num_carries < 1 || uint64_t(a.num_carries) > c.operands.size()) {
    user_error("num_carries is {}, expected 1 to the number of operands, {}", a.num_carries,
               c.operands.size());
  }
  if (a.max_iterations && *a.max_iterations < 0) {
    user_error("max_iterations is {}, it cannot be negative", *a.max_iterations);
  }
  check_body(a.condition, "condition", c.operands);
  check_body(a.body, "body", c.operands);
  const std::vector<TensorType> predicate = output_types(*a.condition);
  if (predicate != std::vector<TensorType>{{DType::kBool, {}}}) {
    user_error("the condition must have one output, bool[]; it has {}{}", predicate.size(),
               predicate.empty() ? "" : ", the first is " + predicate[0].to_string());
  }
  const auto carries = c.operands.first(size_t(a.num_carries));
  std::vector<TensorType> results = output_types(*a.body);
  if (results.size() != carries.size()) {
    user_error("the body has {} outputs for {} carries", results.size(), carries.size());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] == carries[i]) continue;
    user_error("carry {} is {}, the body makes it {}", i, carries[i].to_string(),
               results[i].to_string());
  }
  return results;
}

std::vector<Value> call_while(Builder& b, WhileAttrs attrs, std::span<const Value> operands) {
  return b.call(kWhileOp, Attrs::of(kWhileOp.fields, std::move(attrs)), operands);
}

// The loop over carries and their tangents. Which carries have one is the least set that holds
// those of the operands and that a round does not leave.
class TangentLoop {
 public:
  TangentLoop(Builder& b, const RuleCall& call, std::span<const Value> tangents)
      : b_(b), a_(call.as<WhileAttrs>()), operands_(call.operands), tangents_(tangents) {
    const size_t carries = size_t(a_.num_carries);
    of_carries_ = valid_ones(tangents.first(carries));
    of_captures_ = valid_ones(tangents.subspan(carries));
  }

  std::vector<Value> run() {
    WhileAttrs next = a_;
    while (!build_body(next)) {
    }
    build_condition(next);
    next.num_carries = a_.num_carries + int64_t(positions(of_carries_).size());
    const std::vector<Value> all = call_while(b_, std::move(next), wide_operands());
    const auto primals = std::span(all).first(size_t(a_.num_carries));
    return joined(primals, spread(std::span(all).subspan(primals.size()), of_carries_));
  }

 private:
  // Carries, their tangents, captures, their tangents.
  std::vector<Value> wide_operands() {
    const auto carries = operands_.first(of_carries_.size());
    const auto captures = operands_.subspan(of_carries_.size());
    return joined(carries, tangents_in(b_, carries, tangents_, of_carries_), captures,
                  pick(tangents_.subspan(of_carries_.size()), positions(of_captures_)));
  }

  std::vector<Dual> add_duals(BodyWriter& body) {
    std::vector<Dual> duals;
    size_t first = 0;
    for (const Mask* mask : {&of_carries_, &of_captures_}) {
      const auto types = types_of(b_, operands_.subspan(first, mask->size()));
      const std::vector<Value> primals = body.add_inputs(types);
      std::vector<Value> tangents(mask->size());
      for (size_t i : positions(*mask)) tangents[i] = body.add_input(types[i]);
      for (const Dual& d : duals_of(primals, tangents)) duals.push_back(d);
      first += mask->size();
    }
    return duals;
  }

  // False if a round gives another carry a tangent: then once more, with that one.
  bool build_body(WhileAttrs& next) {
    BodyWriter body(a_.body->name());
    const std::vector<Dual> out = push_forward(body.builder(), *a_.body, add_duals(body));
    std::vector<Value> primals, tangents;
    for (const Dual& d : out) {
      primals.push_back(d.primal);
      tangents.push_back(d.tangent);
    }
    if (widen(of_carries_, valid_ones(tangents))) return false;
    body.add_outputs(primals);
    body.add_outputs(tangents_in(body.builder(), primals, tangents, of_carries_));
    next.body = body.take();
    return true;
  }

  void build_condition(WhileAttrs& next) {
    BodyWriter body(a_.condition->name());
    std::vector<Value> primals;
    for (const Dual& d : add_duals(body)) primals.push_back(d.primal);
    body.add_outputs(inline_graph(body.builder(), *a_.condition, primals));
    next.condition = body.take();
  }

  Builder& b_;
  const WhileAttrs& a_;
  std::span<const Value> operands_, tangents_;
  Mask of_carries_, of_captures_;
};

std::vector<Value> jvp_while(Builder& b, const RuleCall& call, std::span<const Value> tangents) {
  return TangentLoop(b, call, tangents).run();
}

std::vector<Value> vjp_while(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  ScanAttrs scan = while_as_scan(call.as<WhileAttrs>(), types_of(b, call.operands));
  const Attrs attrs = Attrs::of(kScanBackwardOp.fields, std::move(scan));
  const std::vector<Value> given = pack_derivatives(b, call.results, cotangents);
  return unpack_derivatives(b, call.operands,
                            b.call(kScanBackwardOp, attrs, joined(call.operands, given)));
}

// The loop over all lanes. With a condition of its own for each lane it runs until none holds, and
// what a lane that is over computes is dropped.
class BatchedLoop {
 public:
  BatchedLoop(Builder& b, const RuleCall& call, std::span<const uint8_t> batched, const Dim& size)
      : b_(b),
        a_(call.as<WhileAttrs>()),
        operands_(call.operands.begin(), call.operands.end()),
        batched_(batched.begin(), batched.end()),
        size_(size) {}

  std::vector<Value> run() {
    WhileAttrs next = a_;
    while (!build_condition(next) || !build_body(next)) {
    }
    const auto carries = size_t(a_.num_carries);
    for (size_t i = 0; i < carries; ++i) operands_[i] = operand(i);
    std::vector<Value> results = call_while(b_, std::move(next), operands_);
    for (size_t i = 0; i < carries; ++i) {
      results[i] = with_batch(b_, results[i], batched_[i] != 0, size_);
    }
    return results;
  }

 private:
  // Operand i as the batched loop takes it.
  Value operand(size_t i) {
    const Shape& own = a_.body->type(a_.body->inputs()[i]).shape;
    const bool has_axis = b_.shape(operands_[i]).rank() > own.rank();
    return batched_[i] ? with_batch(b_, operands_[i], has_axis, size_) : operands_[i];
  }

  std::vector<Lane> add_lanes(BodyWriter& body) const {
    std::vector<TensorType> types;
    for (size_t i = 0; i < batched_.size(); ++i) {
      const TensorType& own = a_.body->type(a_.body->inputs()[i]);
      types.push_back(batched_[i] ? stacked(own, size_) : own);
    }
    return lanes_of(body.add_inputs(types), batched_);
  }

  bool build_condition(WhileAttrs& next) {
    BodyWriter body(a_.condition->name());
    Builder& b = body.builder();
    const Lane holds = batch_graph(b, *a_.condition, size_, add_lanes(body))[0];
    per_lane_ = holds.batched;
    if (per_lane_ && widen_carries(Mask(size_t(a_.num_carries), 1))) return false;
    body.add_output(per_lane_ ? reduce(b, ReduceKind::kOr, holds.value, {0}) : holds.value);
    next.condition = body.take();
    return true;
  }

  bool build_body(WhileAttrs& next) {
    BodyWriter body(a_.body->name());
    Builder& b = body.builder();
    const std::vector<Lane> in = add_lanes(body);
    const std::vector<Lane> out = batch_graph(b, *a_.body, size_, in);
    Mask mask;
    for (const Lane& l : out) mask.push_back(l.batched);
    if (widen_carries(mask)) return false;
    Lane holds;
    if (per_lane_) holds = batch_graph(b, *a_.condition, size_, in)[0];
    for (size_t i = 0; i < out.size(); ++i) {
      Value v = batched_[i] ? with_batch(b, out[i].value, out[i].batched, size_) : out[i].value;
      if (per_lane_) v = select_lanes(b, holds.value, v, in[i].value);
      body.add_output(v);
    }
    next.body = body.take();
    return true;
  }

  bool widen_carries(const Mask& more) {
    Mask carries(batched_.begin(), batched_.begin() + a_.num_carries);
    const bool changed = widen(carries, more);
    std::copy(carries.begin(), carries.end(), batched_.begin());
    return changed;
  }

  Builder& b_;
  const WhileAttrs& a_;
  std::vector<Value> operands_;
  Mask batched_;
  const Dim& size_;
  bool per_lane_ = false;
};

std::vector<Value> batch_while(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                               const Dim& size) {
  return BatchedLoop(b, call, batched, size).run();
}

}  // namespace

RLX_DEFINE_OP(While) = {
    .name = "While",
    .fields = RLX_FIELDS(WhileAttrs, condition, body, num_carries, max_iterations),
    .flags = kControl,
    .doc =
        R"(A loop: while condition(carries, captures) holds, carries = body(carries, captures).
Operands: carries (at least one), then captures: tensors of any dtype. Attributes: condition, a graph
over carries and captures with one output, bool []; body, a graph over the same inputs that gives the
next carries, of the same types; num_carries; max_iterations, optional: the loop stops after as many
rounds though the condition still holds. Both graphs have no params and updates. Results: the final
carries, which are the operands if the condition does not hold at first.
Errors: num_carries out of range; a negative max_iterations; graphs that are missing or of other
inputs or outputs.
Derivative: forward mode always; reverse mode only with max_iterations, as that of the Scan of this
length whose steps do nothing once the condition fails. Batching: the loop runs until it is over for
all lanes; the carries of a lane that is done stay.)",
    .infer = infer_while,
    .jvp = jvp_while,
    .vjp = vjp_while,
    .batching = batch_while,
};

}  // namespace rlx
