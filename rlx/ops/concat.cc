#include <vector>

#include "rlx/base/error.h"
#include "rlx/ir/packed.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"
#include "rlx/ops/shape_ops.h"

namespace rlx {

RLX_USE_OP(Concat);

namespace {

std::vector<TensorType> infer_concat(const InferContext& c) {
  if (c.operands.empty()) user_error("expected at least one operand, got none");
  const int64_t axis = c.as<ConcatAttrs>().axis;
  TensorType result = c[0];
  if (is_packed(result.dtype) && axis + 1 == result.shape.rank()) {
    user_error("{} moves as whole rows: axis {} is the last", to_string(result.dtype), axis);
  }
  for (size_t i = 1; i < c.operands.size(); ++i) {
    expect_same_dtype(c, 0, i);
    expect_rank(c, i, result.shape.rank(), "every part");
    for (int64_t a = 0; a < result.shape.rank(); ++a) {
      if (a == axis || c[i].shape[a] == result.shape[a]) continue;
      user_error("the parts {} and {} differ on axis {}: they may differ on axis {} only",
                 c[0].shape.to_string(), c[i].shape.to_string(), a, axis);
    }
    result.shape[axis] = result.shape[axis] + c[i].shape[axis];
  }
  return {std::move(result)};
}

std::vector<Value> vjp_concat(Builder& b, const RuleCall& call, std::span<const Value> g) {
  const int64_t axis = call.as<ConcatAttrs>().axis;
  std::vector<Value> parts;
  Dim start(0);
  for (const Value x : call.operands) {
    const Dim size = b.shape(x)[axis];
    parts.push_back(narrow(b, g[0], axis, start, size));
    start = start + size;
  }
  return parts;
}

Cost cost_concat(const CostContext& c) { return {0, io_bytes(c)}; }

// A part of bounded size must be the last one: those behind it would move.
TailRule tail(const InferContext& c, size_t operand, int64_t axis) {
  const bool last = operand + 1 == c.operands.size();
  return axis != c.as<ConcatAttrs>().axis || last ? TailRule::kIgnored : TailRule::kRefused;
}

}  // namespace

RLX_DEFINE_OP(Concat) = {
    .name = "Concat",
    .fields = RLX_FIELDS(ConcatAttrs, axis),
    .flags = kPackedRows,
    .doc =
        R"(Joins the operands along one axis, in their order.
Operands: one or more tensors of one dtype (any) and of equal shapes but for `axis`, where sizes may be
0. Attributes: axis (negative counts from the end; not the last one of packed dtypes). The size of the result on it is the sum, an
expression where sizes are symbolic.
Errors: no operand; different dtypes or ranks; different sizes on another axis.
Gradient: each part's piece of the cotangent.)",
    .infer = infer_concat,
    .normalize = normalize_axis_of_first<ConcatAttrs>,
    .jvp = jvp_linear,
    .vjp = vjp_concat,
    .batching = batch_leading_axis,
    .cost = cost_concat,
    .tail = tail,
};

Value concat(Builder& b, std::span<const Value> parts, int64_t axis) {
  if (parts.size() == 1) {
    normalize_axis(axis, b.shape(parts[0]).rank());
    return parts[0];
  }
  return b.call(kConcatOp, Attrs::of(kConcatOp.fields, ConcatAttrs{axis}), parts)[0];
}

Value pad_axis(Builder& b, Value x, int64_t axis, Dim before, Dim after, double value) {
  axis = normalize_axis(axis, b.shape(x).rank());
  std::vector<Value> parts;
  const auto add_pad = [&](Dim size) {
    if (size.is(0)) return;
    Shape shape = b.shape(x);
    shape[axis] = std::move(size);
    parts.push_back(splat(b, b.dtype(x), std::move(shape), value));
  };
  add_pad(std::move(before));
  parts.push_back(x);
  add_pad(std::move(after));
  return concat(b, parts, axis);
}

}  // namespace rlx
