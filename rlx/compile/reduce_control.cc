#include "rlx/compile/reduce_control.h"

#include <map>
#include <optional>
#include <unordered_map>

#include "rlx/base/error.h"
#include "rlx/ir/leaf.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/body.h"
#include "rlx/ops/build.h"
#include "rlx/ops/control.h"

namespace rlx {

RLX_USE_OP(Constant);
RLX_USE_OP(Expand);
RLX_USE_OP(If);
RLX_USE_OP(While);
RLX_USE_OP(Scan);

namespace {

// Larger constants stay captures: each body that has them would hold a copy of its own.
constexpr int64_t kMaxSunkBytes = 1024;
constexpr size_t kNoInput = ~size_t(0);

using Mask = std::vector<uint8_t>;

// Walks from outputs of a body to the nodes and inputs that they need, each once.
class Needs {
 public:
  explicit Needs(const Graph& body) : body_(body), inputs_(body.inputs().size(), 0) {
    for (size_t i = 0; i < body.inputs().size(); ++i) positions_[body.inputs()[i]] = i;
    met_.assign(body.size(), 0);
  }

  size_t position(Value v) const {
    const auto it = positions_.find(v);
    return it == positions_.end() ? kNoInput : it->second;
  }
  bool input(size_t i) const { return inputs_[i] != 0; }
  bool node(uint32_t id) const { return met_[id] != 0; }

  // Returns the inputs that were not needed before.
  std::vector<size_t> add_output(size_t output) {
    std::vector<size_t> fresh;
    std::vector<uint32_t> stack;
    const auto meet = [&](Value v) {
      if (met_[v.node]) return;
      met_[v.node] = 1;
      stack.push_back(v.node);
    };
    meet(body_.outputs()[output].value);
    while (!stack.empty()) {
      const uint32_t id = stack.back();
      stack.pop_back();
      if (const size_t i = position({id, 0}); i != kNoInput) {
        inputs_[i] = 1;
        fresh.push_back(i);
      }
      for (Value v : body_.node(id).operands) meet(v);
    }
    return fresh;
  }

  // And what the carries among the inputs need: input first + i becomes output i. `followed` says
  // which carries need nothing more, and in the end which are needed as well.
  void add_loop(std::vector<size_t> outputs, size_t first, Mask& followed) {
    while (!outputs.empty()) {
      const size_t output = outputs.back();
      outputs.pop_back();
      for (size_t i : add_output(output)) {
        if (i < first || i - first >= followed.size() || followed[i - first]) continue;
        followed[i - first] = 1;
        outputs.push_back(i - first);
      }
    }
  }

  // The needed nodes on new inputs; values that are not needed stay invalid.
  std::vector<Value> copy(Builder& b, std::span<const Value> arguments,
                          std::span<const size_t> outputs) const {
    std::vector<std::vector<Value>> map(body_.size());
    for (uint32_t id = 0; id < body_.size(); ++id) {
      if (!met_[id]) continue;
      const Node& n = body_.node(id);
      if (const size_t i = position({id, 0}); i != kNoInput) {
        map[id] = {arguments[i]};
        continue;
      }
      std::vector<Value> operands;
      for (Value v : n.operands) operands.push_back(map[v.node][v.index]);
      map[id] = copy_node(b, n, operands);
    }
    std::vector<Value> values;
    for (size_t i : outputs) {
      const Value v = body_.outputs()[i].value;
      values.push_back(map[v.node][v.index]);
    }
    return values;
  }

 private:
  const Graph& body_;
  Mask inputs_, met_;
  std::unordered_map<Value, size_t> positions_;
};

// What becomes of each output of a body.
struct Outputs {
  std::vector<ReducedResult> results;
  std::vector<size_t> kept;  // of the old body, in the order of the new one

  explicit Outputs(size_t count) : results(count) {
    for (ReducedResult& r : results) r.used = false;
  }
  void keep(size_t output) {
    results[output] = {true, {}, kept.size()};
    kept.push_back(output);
  }
};

Mask used_outputs(const ControlCall& call, size_t outputs) {
  Mask used(outputs, 0);
  for (const ReducedResult& r : call.results) {
    if (r.used && !r.known.valid()) used[r.index] = 1;
  }
  return used;
}

void follow(ControlCall& call, const Outputs& outputs) {
  for (ReducedResult& r : call.results) {
    if (!r.used || r.known.valid()) continue;
    r = outputs.results[r.index];
  }
}

// New operands of one part, each once, and the inputs that they become.
class Part {
 public:
  Value add(BodyWriter& body, Value operand, const TensorType& type) {
    const auto [it, fresh] = inputs_.try_emplace(operand);
    if (fresh) {
      it->second = body.add_input(type);
      operands_.push_back(operand);
    }
    return it->second;
  }
  // As a constant of the body if the operand is a small one or a splat.
  Value capture(const Builder& outer, BodyWriter& body, Value operand) {
    const Node& n = outer.node_of(operand);
    if (n.op == &kConstantOp) {
      const auto& c = n.attrs.as<ConstantAttrs>();
      if (c.splat || c.value.num_elements() * size_of(c.value.dtype()) <= kMaxSunkBytes) {
        return body.builder().op(kConstantOp, c, {});
      }
    }
    return add(body, operand, outer.type(operand));
  }
  const std::vector<Value>& operands() const { return operands_; }

 private:
  std::unordered_map<Value, Value> inputs_;
  std::vector<Value> operands_;
};

// --- If

void reduce_if(Builder& b, ControlCall& call) {
  const IfAttrs a = call.attrs.as<IfAttrs>();
  const Graph &yes = *a.then_branch, &no = *a.else_branch;
  Needs in_yes(yes), in_no(no);
  Outputs outputs(yes.outputs().size());
  const Mask used = used_outputs(call, outputs.results.size());
  std::map<std::pair<Value, Value>, size_t> seen;
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    const std::pair values{yes.outputs()[i].value, no.outputs()[i].value};
    const size_t position = in_yes.position(values.first);
    if (position != kNoInput && position == in_no.position(values.second)) {
      outputs.results[i] = {true, call.operands[1 + position], 0};
    } else if (const auto [it, fresh] = seen.try_emplace(values, i); fresh) {
      outputs.keep(i);
    } else {
      outputs.results[i] = outputs.results[it->second];
    }
  }
  for (size_t i : outputs.kept) {
    in_yes.add_output(i);
    in_no.add_output(i);
  }
  std::vector<Value> operands;
  const auto build = [&](const Graph& branch, const Needs& needs) {
    BodyWriter body(branch.name());
    Part captures;
    std::vector<Value> arguments(call.operands.size() - 1);
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!in_yes.input(i) && !in_no.input(i)) continue;
      arguments[i] = captures.capture(b, body, call.operands[1 + i]);
    }
    body.add_outputs(needs.copy(body.builder(), arguments, outputs.kept));
    operands = joined(std::vector{call.operands[0]}, captures.operands());
    return body.take();
  };
  IfAttrs next;
  next.then_branch = build(yes, in_yes);
  next.else_branch = build(no, in_no);
  call.attrs = Attrs::of(kIfOp.fields, std::move(next));
  call.operands = std::move(operands);
  follow(call, outputs);
}

// --- While

// Carries that a round hands on as they are.
Mask unchanged_carries(const Graph& body, const Needs& needs, size_t first, size_t carries) {
  Mask same(carries, 0);
  for (size_t i = 0; i < carries; ++i) {
    same[i] = needs.position(body.outputs()[i].value) == first + i;
  }
  return same;
}

struct WhileNeeds {
  Needs condition, body;
  Mask unchanged, needed;  // of the carries

  WhileNeeds(const WhileAttrs& a, const Mask& used) : condition(*a.condition), body(*a.body) {
    const auto carries = size_t(a.num_carries);
    unchanged = unchanged_carries(*a.body, body, 0, carries);
    needed = unchanged;
    std::vector<size_t> outputs;
    const auto want = [&](size_t carry) {
      if (carry >= carries || needed[carry]) return;
      needed[carry] = 1;
      outputs.push_back(carry);
    };
    for (size_t i = 0; i < carries; ++i) {
      if (used[i]) want(i);
    }
    for (size_t i : condition.add_output(0)) want(i);
    body.add_loop(std::move(outputs), 0, needed);
  }
  bool kept(size_t carry) const { return needed[carry] && !unchanged[carry]; }
  bool input(size_t i) const { return condition.input(i) || body.input(i); }
};

// The loop has no round, whatever the carries are.
bool never_runs(const WhileAttrs& a) {
  if (a.max_iterations && *a.max_iterations == 0) return true;
  const Node& n = a.condition->node(a.condition->outputs()[0].value);
  return n.op == &kConstantOp && n.attrs.as<ConstantAttrs>().value.at(0) == 0;
}

void reduce_while(Builder& b, ControlCall& call) {
  const WhileAttrs a = call.attrs.as<WhileAttrs>();
  const auto carries = size_t(a.num_carries);
  Outputs outputs(carries);
  const Mask used = used_outputs(call, carries);
  const WhileNeeds needs(a, used);
  const bool passes = never_runs(a);
  for (size_t i = 0; i < carries; ++i) {
    if (passes || needs.unchanged[i]) {
      outputs.results[i] = {true, call.operands[i], 0};
    } else if (needs.needed[i]) {
      outputs.keep(i);
    }
  }
  follow(call, outputs);
  if (passes) return;
  Part captures;
  const auto build = [&](const Graph& graph, const Needs& own, std::span<const size_t> kept) {
    BodyWriter body(graph.name());
    captures = {};
    std::vector<Value> arguments(call.operands.size());
    for (size_t i : outputs.kept) arguments[i] = body.add_input(b.type(call.operands[i]));
    for (size_t i = 0; i < arguments.size(); ++i) {
      const bool is_kept = i < carries && needs.kept(i);
      if (!is_kept && needs.input(i)) arguments[i] = captures.capture(b, body, call.operands[i]);
    }
    body.add_outputs(own.copy(body.builder(), arguments, kept));
    return body.take();
  };
  const size_t predicate[] = {0};
  WhileAttrs next = a;
  next.condition = build(*a.condition, needs.condition, predicate);
  next.body = build(*a.body, needs.body, outputs.kept);
  next.num_carries = int64_t(outputs.kept.size());
  std::vector<Value> operands;
  for (size_t i : outputs.kept) operands.push_back(call.operands[i]);
  call.attrs = Attrs::of(kWhileOp.fields, std::move(next));
  call.operands = joined(operands, captures.operands());
}

// --- Scan

struct ScanNeeds {
  Needs body;
  Mask unchanged, needed;  // of the carries

  explicit ScanNeeds(const ScanAttrs& a) : body(*a.body) {
    unchanged = unchanged_carries(*a.body, body, 1, size_t(a.num_carries));
    needed = unchanged;
  }
  void add(std::vector<size_t> outputs) {
    for (size_t i : outputs) {
      if (i < needed.size()) needed[i] = 1;
    }
    body.add_loop(std::move(outputs), 1, needed);
  }
  bool kept(size_t carry) const { return needed[carry] && !unchanged[carry]; }
};

// y of a Scan that is known without running it: what the body hands on of an input that does not
// change, or of an x.
Value known_y(Builder& b, const ScanAttrs& a, const ScanNeeds& needs, const ControlCall& call,
              size_t output) {
  const size_t input = needs.body.position(a.body->outputs()[output].value);
  if (input == kNoInput) return {};
  if (input == 0) return iota(b, DType::kI64, {a.length}, 0);
  const Value operand = call.operands[input - 1];
  const auto carries = size_t(a.num_carries);
  if (input - 1 >= carries + size_t(a.num_captures)) return operand;
  if (input - 1 < carries && !needs.unchanged[input - 1]) return {};
  return expand(b, operand, stacked(b.type(operand), a.length).shape);
}

Outputs scan_outputs(Builder& b, const ScanAttrs& a, ScanNeeds& needs, const ControlCall& call) {
  const auto carries = size_t(a.num_carries);
  Outputs outputs(a.body->outputs().size());
  const Mask used = used_outputs(call, outputs.results.size());
  std::vector<size_t> roots;
  std::unordered_map<Value, size_t> seen;
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    if (i < carries) {
      if (needs.unchanged[i]) {
        outputs.results[i] = {true, call.operands[i], 0};
      } else {
        roots.push_back(i);
      }
    } else if (const Value known = known_y(b, a, needs, call, i); known.valid()) {
      outputs.results[i] = {true, known, 0};
    } else if (seen.try_emplace(a.body->outputs()[i].value, i).second) {
      roots.push_back(i);
    }
  }
  needs.add(roots);
  for (size_t i = 0; i < carries; ++i) {
    if (needs.kept(i)) outputs.keep(i);
  }
  for (size_t i : roots) {
    if (i >= carries) outputs.keep(i);
  }
  for (size_t i = carries; i < used.size(); ++i) {
    if (!used[i] || outputs.results[i].known.valid()) continue;
    outputs.results[i] = outputs.results[seen.at(a.body->outputs()[i].value)];
  }
  return outputs;
}

// An x whose slices are all alike, as a value of the body.
Value uniform_slice(const Builder& outer, BodyWriter& body, Part& captures, Value x) {
  const Node& n = outer.node_of(x);
  const TensorType slice = slice_of(outer.type(x));
  if (n.op == &kConstantOp && n.attrs.as<ConstantAttrs>().splat) {
    return body.builder().op(
        kConstantOp, ConstantAttrs{n.attrs.as<ConstantAttrs>().value, slice.shape, true}, {});
  }
  if (n.op != &kExpandOp) return {};
  const Value source = n.operands[0];
  if (outer.shape(source).rank() > slice.shape.rank()) return {};
  const Value inside = captures.capture(outer, body, source);
  return outer.shape(source) == slice.shape ? inside : expand(body.builder(), inside, slice.shape);
}

void reduce_scan(Builder& b, ControlCall& call) {
  const ScanAttrs a = call.attrs.as<ScanAttrs>();
  const auto carries = size_t(a.num_carries), first_x = carries + size_t(a.num_captures);
  ScanNeeds needs(a);
  const Outputs outputs = scan_outputs(b, a, needs, call);
  BodyWriter body(a.body->name());
  std::vector<Value> arguments{body.add_input({DType::kI64, {}})}, kept;
  arguments.resize(1 + call.operands.size());
  Part captures, xs;
  for (size_t i = 0; i < carries; ++i) {
    if (!needs.kept(i)) continue;
    arguments[1 + i] = body.add_input(b.type(call.operands[i]));
    kept.push_back(call.operands[i]);
  }
  for (size_t i = 0; i < first_x; ++i) {
    const bool is_kept = i < carries && needs.kept(i);
    if (is_kept || !needs.body.input(1 + i)) continue;
    arguments[1 + i] = captures.capture(b, body, call.operands[i]);
  }
  for (size_t i = first_x; i < call.operands.size(); ++i) {
    if (needs.body.input(1 + i)) {
      arguments[1 + i] = uniform_slice(b, body, captures, call.operands[i]);
    }
  }
  for (size_t i = first_x; i < call.operands.size(); ++i) {
    if (!needs.body.input(1 + i) || arguments[1 + i].valid()) continue;
    arguments[1 + i] = xs.add(body, call.operands[i], slice_of(b.type(call.operands[i])));
  }
  body.add_outputs(needs.body.copy(body.builder(), arguments, outputs.kept));
  ScanAttrs next = a;
  next.num_carries = int64_t(kept.size());
  next.num_captures = int64_t(captures.operands().size());
  next.body = body.take();
  call.attrs = Attrs::of(kScanOp.fields, std::move(next));
  call.operands = joined(kept, captures.operands(), xs.operands());
  follow(call, outputs);
}

}  // namespace

std::vector<uint8_t> needed_operands(const Node& node, const std::vector<uint8_t>& used) {
  Mask needed(node.operands.size(), 0);
  std::vector<size_t> outputs;
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) outputs.push_back(i);
  }
  if (node.op == &kIfOp) {
    const auto& a = node.attrs.as<IfAttrs>();
    Needs yes(*a.then_branch), no(*a.else_branch);
    for (size_t i : outputs) {
      yes.add_output(i);
      no.add_output(i);
    }
    needed[0] = 1;
    for (size_t i = 1; i < needed.size(); ++i) needed[i] = yes.input(i - 1) || no.input(i - 1);
  } else if (node.op == &kWhileOp) {
    const auto& a = node.attrs.as<WhileAttrs>();
    const WhileNeeds needs(a, used);
    for (size_t i = 0; i < needed.size(); ++i) {
      const bool carry = i < needs.needed.size();
      needed[i] = needs.input(i) || (carry && (used[i] || needs.kept(i)));
    }
  } else {
    const auto& a = node.attrs.as<ScanAttrs>();
    ScanNeeds needs(a);
    needs.add(outputs);
    for (size_t i = 0; i < needed.size(); ++i) {
      const bool carry = i < needs.needed.size();
      needed[i] = needs.body.input(1 + i) || (carry && (used[i] || needs.kept(i)));
    }
  }
  return needed;
}

void reduce_control(Builder& b, ControlCall& call) {
  if (call.op == &kIfOp) {
    reduce_if(b, call);
  } else if (call.op == &kWhileOp) {
    reduce_while(b, call);
  } else if (call.op == &kScanOp) {
    reduce_scan(b, call);
  } else {
    internal_error("{} is no control step", call.op->name);
  }
}

}  // namespace rlx
