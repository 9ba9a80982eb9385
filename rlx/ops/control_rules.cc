#include "rlx/ops/control_rules.h"

#include "rlx/base/error.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/build.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(If);
RLX_USE_OP(Scan);

namespace {

Mask differentiable_ones(const Builder& b, std::span<const Value> values) {
  Mask mask;
  for (Value v : values) mask.push_back(is_differentiable(b.dtype(v)));
  return mask;
}

}  // namespace

std::vector<size_t> positions(std::span<const uint8_t> mask) {
  std::vector<size_t> at;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i]) at.push_back(i);
  }
  return at;
}

std::vector<size_t> differentiable_positions(std::span<const TensorType> types) {
  std::vector<size_t> at;
  for (size_t i = 0; i < types.size(); ++i) {
    if (is_differentiable(types[i].dtype)) at.push_back(i);
  }
  return at;
}

std::vector<Value> pick(std::span<const Value> values, std::span<const size_t> at) {
  std::vector<Value> picked;
  picked.reserve(at.size());
  for (size_t i : at) picked.push_back(values[i]);
  return picked;
}

Mask valid_ones(std::span<const Value> values) {
  Mask mask;
  for (Value v : values) mask.push_back(v.valid());
  return mask;
}

std::vector<Value> tangents_in(Builder& b, std::span<const Value> primals,
                               std::span<const Value> tangents, std::span<const uint8_t> mask) {
  std::vector<Value> list;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i]) list.push_back(tangents[i].valid() ? tangents[i] : zeros_like(b, primals[i]));
  }
  return list;
}

std::vector<Value> spread(std::span<const Value> packed, std::span<const uint8_t> mask) {
  std::vector<Value> list(mask.size());
  size_t next = 0;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i]) list[i] = packed[next++];
  }
  return list;
}

std::vector<Dual> duals_of(std::span<const Value> primals, std::span<const Value> tangents) {
  std::vector<Dual> duals;
  for (size_t i = 0; i < primals.size(); ++i) duals.push_back({primals[i], tangents[i]});
  return duals;
}

std::vector<Lane> lanes_of(std::span<const Value> values, std::span<const uint8_t> batched) {
  std::vector<Lane> lanes;
  for (size_t i = 0; i < values.size(); ++i) lanes.push_back({values[i], batched[i] != 0});
  return lanes;
}

void check_rule_graph(const GraphRef& rule, std::string_view what,
                      std::span<const TensorType> operands, std::span<const TensorType> results,
                      RuleMode mode) {
  if (!rule) return;
  const bool reverse = mode == RuleMode::kVjp;
  const auto from = reverse ? results : operands, to = reverse ? operands : results;
  std::vector<TensorType> inputs(operands.begin(), operands.end()), outputs;
  inputs.insert(inputs.end(), results.begin(), results.end());
  for (size_t i : differentiable_positions(from)) inputs.push_back(from[i]);
  for (size_t i : differentiable_positions(to)) outputs.push_back(to[i]);
  check_body(rule, what, inputs);
  const std::vector<TensorType> given = output_types(*rule);
  if (given.size() != outputs.size()) {
    user_error("the {} has {} outputs for {} differentiable {}", what, given.size(), outputs.size(),
               reverse ? "operands" : "results");
  }
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] == outputs[i]) continue;
    user_error("output {} of the {} is {}, it must be {}", i, what, given[i].to_string(),
               outputs[i].to_string());
  }
}

std::vector<Value> pack_derivatives(Builder& b, std::span<const Value> values,
                                    std::span<const Value> derivatives) {
  return tangents_in(b, values, derivatives, differentiable_ones(b, values));
}

std::vector<Value> unpack_derivatives(const Builder& b, std::span<const Value> values,
                                      std::span<const Value> packed) {
  return spread(packed, differentiable_ones(b, values));
}

bool widen(Mask& mask, const Mask& more) {
  bool changed = false;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] || !more[i]) continue;
    mask[i] = 1;
    changed = true;
  }
  return changed;
}

Value select_lanes(Builder& b, Value predicate, Value x, Value y) {
  Shape shape = b.shape(predicate);
  while (shape.rank() < b.shape(x).rank()) shape.push_back(1);
  return where(b, reshape(b, predicate, std::move(shape)), x, y);
}

std::vector<Value> scan_call(Builder& b, ScanAttrs attrs, std::span<const Value> operands) {
  return b.call(kScanOp, Attrs::of(kScanOp.fields, std::move(attrs)), operands);
}

ScanAttrs while_as_scan(const WhileAttrs& a, std::span<const TensorType> operands) {
  if (!a.max_iterations) {
    fail(ErrorKind::kUnsupported,
         "While has no reverse-mode derivative without max_iterations: the number of rounds to "
         "remember is unknown; set max_iterations, use Scan, or forward mode");
  }
  BodyWriter pass("over");
  const std::vector<Value> kept = pass.add_inputs(operands);
  pass.add_outputs(std::span(kept).first(size_t(a.num_carries)));

  BodyWriter step("step");
  step.add_input({DType::kI64, {}});
  std::vector<Value> values = step.add_inputs(operands);
  Builder& b = step.builder();
  values.insert(values.begin(), inline_graph(b, *a.condition, values)[0]);
  step.add_outputs(b.call(kIfOp, Attrs::of(kIfOp.fields, IfAttrs{a.body, pass.take()}), values));

  ScanAttrs scan;
  scan.body = step.take();
  scan.num_carries = a.num_carries;
  scan.num_captures = int64_t(operands.size()) - a.num_carries;
  scan.length = *a.max_iterations;
  return scan;
}

}  // namespace rlx
