#include "rlx/ops/rules.h"

#include <algorithm>

#include "rlx/base/error.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/build.h"

namespace rlx {
namespace {

bool any_valid(std::span<const Value> values) {
  return std::any_of(values.begin(), values.end(), [](Value v) { return v.valid(); });
}

std::vector<Value> all_with_batch(Builder& b, const RuleCall& call,
                                  std::span<const uint8_t> batched, const Dim& size) {
  std::vector<Value> operands;
  operands.reserve(call.operands.size());
  for (size_t i = 0; i < call.operands.size(); ++i) {
    operands.push_back(with_batch(b, call.operands[i], batched[i] != 0, size));
  }
  return operands;
}

}  // namespace

std::vector<Value> jvp_linear(Builder& b, const RuleCall& call, std::span<const Value> tangents) {
  if (!any_valid(tangents)) return std::vector<Value>(call.results.size());
  std::vector<Value> operands(tangents.begin(), tangents.end());
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].valid()) operands[i] = zeros_like(b, call.operands[i]);
  }
  return b.call(call.op, call.attrs, operands);
}

std::vector<Value> jvp_multilinear(Builder& b, const RuleCall& call,
                                   std::span<const Value> tangents) {
  std::vector<Value> sums(call.results.size());
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (!tangents[i].valid()) continue;
    std::vector<Value> operands(call.operands.begin(), call.operands.end());
    operands[i] = tangents[i];
    const std::vector<Value> terms = b.call(call.op, call.attrs, operands);
    for (size_t r = 0; r < sums.size(); ++r) sums[r] = add_valid(b, sums[r], terms[r]);
  }
  return sums;
}

std::vector<Value> jvp_by_vjp(Builder& b, const RuleCall& call, std::span<const Value> tangents) {
  if (call.operands.size() != 1 || call.results.size() != 1 || !call.op.vjp) {
    internal_error("{}: a tangent by the vjp needs one operand, one result and a vjp",
                   call.op.name);
  }
  if (!tangents[0].valid()) return {Value{}};
  // The vjp applies the conjugate transpose; with a symmetric Jacobian, conjugating before and
  // after makes it the Jacobian.
  const Value cotangent = conjugate(b, tangents[0]);
  const Value t = call.op.vjp(b, call, {&cotangent, 1})[0];
  return {t.valid() ? conjugate(b, t) : t};
}

std::vector<Value> batch_elementwise(Builder& b, const RuleCall& call,
                                     std::span<const uint8_t> batched, const Dim&) {
  int64_t rank = 0;  // of the result without the batch axis
  for (size_t i = 0; i < call.operands.size(); ++i) {
    rank = std::max(rank, b.shape(call.operands[i]).rank() - (batched[i] ? 1 : 0));
  }
  std::vector<Value> operands(call.operands.begin(), call.operands.end());
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!batched[i]) continue;
    Shape padded = b.shape(operands[i]);
    if (padded.rank() == rank + 1) continue;
    while (padded.rank() < rank + 1) padded.insert(1, 1);
    operands[i] = reshape(b, operands[i], std::move(padded));
  }
  return b.call(call.op, call.attrs, operands);
}

std::vector<Value> batch_leading(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                                 const Dim& size) {
  return b.call(call.op, call.attrs, all_with_batch(b, call, batched, size));
}

std::vector<Value> batch_leading_axis(Builder& b, const RuleCall& call,
                                      std::span<const uint8_t> batched, const Dim& size) {
  const int64_t axis = std::get<int64_t>(call.attrs.field("axis"));
  return b.call(call.op, call.attrs.with("axis", axis + 1), all_with_batch(b, call, batched, size));
}

Value with_batch(Builder& b, Value v, bool batched, const Dim& size) {
  if (batched) return v;
  Shape shape = b.shape(v);
  shape.insert(0, size);
  return expand(b, v, std::move(shape));
}

Value add_valid(Builder& b, Value x, Value y) {
  if (!x.valid()) return y;
  return y.valid() ? add(b, x, y) : x;
}

Value unbroadcast(Builder& b, Value g, const Shape& shape) {
  const Shape from = b.shape(g);
  if (from == shape) return g;
  const int64_t extra = from.rank() - shape.rank();
  if (extra < 0) {
    internal_error("unbroadcast from {} to {}", from.to_string(), shape.to_string());
  }
  std::vector<int64_t> axes;
  for (int64_t a = 0; a < from.rank(); ++a) {
    if (a < extra || (shape[a - extra].is(1) && !from[a].is(1))) axes.push_back(a);
  }
  g = sum(b, g, std::move(axes), /*keep_dims=*/true);
  return b.shape(g) == shape ? g : reshape(b, g, shape);
}

}  // namespace rlx
