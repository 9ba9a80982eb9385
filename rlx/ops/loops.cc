#include "rlx/ops/loops.h"

#include <algorithm>
#include <unordered_map>

#include "rlx/base/error.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/body.h"
#include "rlx/ops/build.h"
#include "rlx/ops/control.h"

namespace rlx {

RLX_USE_OP(If);
RLX_USE_OP(While);
RLX_USE_OP(Scan);

namespace {

const TensorType kCount{DType::kI64, {}};

// --- Seeds

bool draws(const Graph& graph);

bool draws(const Node& n) {
  if (n.op->has(kRandom)) return true;
  if (n.op == &kIfOp) {
    const auto& a = n.attrs.as<IfAttrs>();
    return draws(*a.then_branch) || draws(*a.else_branch);
  }
  if (n.op == &kWhileOp) {
    const auto& a = n.attrs.as<WhileAttrs>();
    return draws(*a.condition) || draws(*a.body);
  }
  return n.op == &kScanOp && draws(*n.attrs.as<ScanAttrs>().body);
}

bool draws(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const Node& n) { return draws(n); });
}

GraphRef with_index(const Graph& body, size_t at);

// The seed of a random op is its last operand, a u64; it may be left out, for 0.
std::vector<Value> fold_draw(Builder& b, const Node& n, std::span<const Value> operands,
                             Value index) {
  std::vector<Value> own(operands.begin(), operands.end());
  if (own.empty() || b.dtype(own.back()) != DType::kU64) {
    own.push_back(scalar(b, DType::kU64, 0));
  }
  own.back() = rng_fold(b, own.back(), index);
  return b.call(*n.op, n.attrs, own);
}

// The step takes the index as one more capture.
std::vector<Value> fold_step(Builder& b, const Node& n, std::span<const Value> operands,
                             Value index) {
  std::vector<Value> own(operands.begin(), operands.end());
  if (n.op == &kScanOp) {
    ScanAttrs a = n.attrs.as<ScanAttrs>();
    const auto at = size_t(a.num_carries + a.num_captures);
    a.body = with_index(*a.body, 1 + at);
    ++a.num_captures;
    own.insert(own.begin() + int64_t(at), index);
    return b.call(*n.op, Attrs::of(n.op->fields, std::move(a)), own);
  }
  own.push_back(index);
  if (n.op == &kIfOp) {
    IfAttrs a = n.attrs.as<IfAttrs>();
    for (GraphRef* branch : {&a.then_branch, &a.else_branch}) {
      *branch = with_index(**branch, operands.size() - 1);
    }
    return b.call(*n.op, Attrs::of(n.op->fields, std::move(a)), own);
  }
  WhileAttrs a = n.attrs.as<WhileAttrs>();
  a.condition = with_index(*a.condition, operands.size());
  a.body = with_index(*a.body, operands.size());
  return b.call(*n.op, Attrs::of(n.op->fields, std::move(a)), own);
}

NodeRewrite fold_by(Value index) {
  return [index](Builder& b, const Node& n,
                 std::span<const Value> operands) -> std::optional<std::vector<Value>> {
    if (n.op->has(kRandom)) return fold_draw(b, n, operands, index);
    if (draws(n)) return fold_step(b, n, operands, index);
    return std::nullopt;
  };
}

// The body with an index as one more input, folded into what is drawn.
GraphRef with_index(const Graph& body, size_t at) {
  BodyWriter w(body.name());
  std::vector<Value> arguments;
  Value index;
  for (size_t i = 0; i <= body.inputs().size(); ++i) {
    if (i == at) index = w.add_input(kCount);
    if (i < body.inputs().size()) arguments.push_back(w.add_input(body.type(body.inputs()[i])));
  }
  w.add_outputs(inline_graph(w.builder(), body, arguments, fold_by(index)));
  return w.take();
}

// The body with one of its inputs folded into what is drawn.
GraphRef fold_seeds(GraphRef body, size_t index) {
  if (!draws(*body)) return body;
  BodyWriter w(body->name());
  std::vector<Value> arguments;
  for (Value v : body->inputs()) arguments.push_back(w.add_input(body->type(v)));
  w.add_outputs(inline_graph(w.builder(), *body, arguments, fold_by(arguments[index])));
  return w.take();
}

// --- Parts

std::vector<Value> add_inputs(Body& body, const Builder& b, std::span<const Value> outer) {
  std::vector<Value> inputs;
  for (Value v : outer) inputs.push_back(body.add_input(b.type(v)));
  return inputs;
}

// What both bodies capture.
std::vector<Value> all_captured(const Body& x, const Body& y) {
  std::vector<Value> all = x.captured();
  for (Value v : y.captured()) {
    if (std::find(all.begin(), all.end(), v) == all.end()) all.push_back(v);
  }
  return all;
}

}  // namespace

Body::Body(Builder& around, std::string name)
    : OwnGraph{Graph(std::move(name))}, Builder(own), around_(around) {}

Value Body::capture(Value outer) {
  if (!outer.valid() || outer.node >= around_.graph().size() ||
      outer.index >= around_.node_of(outer).results.size()) {
    user_error("a body captures a value that is not one of the graph around it");
  }
  const auto it = std::find(outer_.begin(), outer_.end(), outer);
  if (it != outer_.end()) return inner_[size_t(it - outer_.begin())];
  outer_.push_back(outer);
  inner_.push_back(add_input(around_.type(outer)));
  return inner_.back();
}

Value Body::add_input(const TensorType& type) {
  return input(*this, fmt::format("in{}", own.inputs().size()), type.dtype, type.shape);
}

GraphRef Body::finish(std::span<const Value> inputs, size_t at, std::span<const Value> captures,
                      std::span<const Value> outputs) {
  for (Value v : outputs) own.add_output(fmt::format("out{}", own.outputs().size()), v);
  BodyWriter w(own.name());
  std::unordered_map<Value, Value> map;
  for (size_t i = 0; i <= inputs.size(); ++i) {
    if (i == at) {
      for (Value outer : captures) {
        const Value v = w.add_input(around_.type(outer));
        const auto it = std::find(outer_.begin(), outer_.end(), outer);
        if (it != outer_.end()) map[inner_[size_t(it - outer_.begin())]] = v;
      }
    }
    if (i < inputs.size()) map[inputs[i]] = w.add_input(own.type(inputs[i]));
  }
  std::vector<Value> arguments;
  for (Value v : own.inputs()) {
    // An input that was not asked for is not used either.
    const auto it = map.find(v);
    arguments.push_back(
        it != map.end() ? it->second : splat(w.builder(), own.type(v).dtype, own.type(v).shape, 0));
  }
  w.add_outputs(inline_graph(w.builder(), own, arguments));
  return w.take();
}

std::vector<Value> scan(Builder& b, std::span<const Value> carries, std::span<const Value> xs,
                        const Dim& length, const ScanFn& step, ScanOptions options) {
  Body body(b, "step");
  std::vector<Value> inputs{body.add_input(kCount)}, slices;
  const std::vector<Value> in = add_inputs(body, b, carries);
  for (Value x : xs) {
    if (b.shape(x).rank() == 0) user_error("scan: an x is a scalar, it has no slices");
    slices.push_back(body.add_input(slice_of(b.type(x))));
  }
  const ScanStep out = step(body, inputs[0], in, slices);
  if (out.carries.size() != carries.size()) {
    user_error("scan: the step gives {} carries, there are {}", out.carries.size(), carries.size());
  }
  inputs = joined(inputs, in, slices);
  const std::vector<Value> captures = body.captured();
  ScanAttrs a;
  a.body =
      fold_seeds(body.finish(inputs, 1 + carries.size(), captures, joined(out.carries, out.ys)), 0);
  a.num_carries = int64_t(carries.size());
  a.num_captures = int64_t(captures.size());
  a.length = length;
  a.reverse = options.reverse;
  a.checkpoints = options.checkpoints;
  return b.call(kScanOp, Attrs::of(kScanOp.fields, std::move(a)), joined(carries, captures, xs));
}

std::vector<Value> while_loop(Builder& b, std::span<const Value> carries,
                              const ConditionFn& condition, const RoundFn& round,
                              std::optional<int64_t> max_iterations) {
  Body test(b, "condition"), body(b, "round");
  std::vector<Value> in_test = add_inputs(test, b, carries), in_body = add_inputs(body, b, carries);
  const Value holds = condition(test, in_test);
  std::vector<Value> next = round(body, in_body), operands(carries.begin(), carries.end());
  if (next.size() != carries.size()) {
    user_error("while_loop: the round gives {} carries, there are {}", next.size(), carries.size());
  }
  // Draws need the number of the round.
  const bool counted = draws(test.graph()) || draws(body.graph());
  if (counted) {
    in_test.push_back(test.add_input(kCount));
    in_body.push_back(body.add_input(kCount));
    next.push_back(add(body, in_body.back(), 1));
    operands.push_back(scalar(b, DType::kI64, 0));
  }
  const std::vector<Value> captures = all_captured(test, body);
  WhileAttrs a;
  a.condition = test.finish(in_test, in_test.size(), captures, {&holds, 1});
  a.body = body.finish(in_body, in_body.size(), captures, next);
  if (counted) {
    a.condition = fold_seeds(a.condition, carries.size());
    a.body = fold_seeds(a.body, carries.size());
  }
  a.num_carries = int64_t(operands.size());
  a.max_iterations = max_iterations;
  std::vector<Value> results =
      b.call(kWhileOp, Attrs::of(kWhileOp.fields, std::move(a)), joined(operands, captures));
  results.resize(carries.size());
  return results;
}

std::vector<Value> if_else(Builder& b, Value predicate, const BranchFn& then_branch,
                           const BranchFn& else_branch) {
  Body yes(b, "then"), no(b, "else");
  const std::vector<Value> in_yes = then_branch(yes), in_no = else_branch(no);
  const std::vector<Value> captures = all_captured(yes, no);
  IfAttrs a;
  a.then_branch = yes.finish({}, 0, captures, in_yes);
  a.else_branch = no.finish({}, 0, captures, in_no);
  return b.call(kIfOp, Attrs::of(kIfOp.fields, std::move(a)),
                joined(std::vector{predicate}, captures));
}

}  // namespace rlx
