#include "rlx/ops/shape_ops.h"

#include <algorithm>
#include <numeric>

#include "rlx/base/error.h"
#include "rlx/ir/packed.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Reshape);
RLX_USE_OP(Transpose);
RLX_USE_OP(Expand);
RLX_USE_OP(Narrow);
RLX_USE_OP(Copy);

namespace {

// Views move nothing, copies compute nothing.
Cost cost_view(const CostContext&) { return {}; }
Cost cost_copy(const CostContext& c) { return {0, io_bytes(c)}; }

// The shape of a call of Reshape or Expand under a new leading axis.
Shape with_leading(Shape shape, const Dim& size) {
  shape.insert(0, size);
  return shape;
}

void expect_sizes(const Shape& shape, std::string_view what) {
  if (shape.rank() > kMaxRank) {
    user_error("{} {} has {} axes, at most {} are possible", what, shape.to_string(), shape.rank(),
               kMaxRank);
  }
  for (const Dim& d : shape) {
    if (d.is_static() && d.value() < 0) {
      user_error("{} {} has the negative size {}", what, shape.to_string(), d.to_string());
    }
  }
}

// --- Reshape

Attrs normalize_reshape(const InferContext& c) {
  if (c.operands.empty()) return c.attrs;
  const Shape& target = c.as<ReshapeAttrs>().shape;
  int64_t open = -1;
  Dim others(1);
  bool others_zero = false;
  for (int64_t i = 0; i < target.rank(); ++i) {
    if (!target[i].is(-1)) {
      others_zero |= target[i].is(0);
      others = others * target[i];
    } else if (open >= 0) {
      user_error("the shape {} leaves more than one size open: -1 may stand once",
                 target.to_string());
    } else {
      open = i;
    }
  }
  if (open < 0) return c.attrs;
  const Dim total = c[0].shape.num_elements();
  const std::optional<Dim> size = others_zero ? std::nullopt : exact_div(total, others);
  if (!size) {
    user_error("the -1 of the shape {} has no size: {} elements are not a multiple of {}",
               target.to_string(), total.to_string(), others.to_string());
  }
  Shape shape = target;
  shape[open] = *size;
  return Attrs::of(c.attrs.table(), ReshapeAttrs{std::move(shape)});
}

std::vector<TensorType> infer_reshape(const InferContext& c) {
  expect_operands(c, 1);
  const Shape& target = c.as<ReshapeAttrs>().shape;
  expect_sizes(target, "the shape");
  const Dim from = c[0].shape.num_elements(), to = target.num_elements();
  if (from != to) {
    user_error("cannot reshape {} to {}: {} elements against {}", c[0].shape.to_string(),
               target.to_string(), from.to_string(), to.to_string());
  }
  expect_same_last_axis(c, target);
  return {{c[0].dtype, target}};
}

std::vector<Value> vjp_reshape(Builder& b, const RuleCall& call, std::span<const Value> g) {
  return {reshape(b, g[0], b.shape(call.operands[0]))};
}

std::vector<Value> batch_reshape(Builder& b, const RuleCall& call, std::span<const uint8_t>,
                                 const Dim& size) {
  return {reshape(b, call.operands[0], with_leading(call.as<ReshapeAttrs>().shape, size))};
}

// --- Transpose

Attrs normalize_transpose(const InferContext& c) {
  if (c.operands.empty()) return c.attrs;
  TransposeAttrs a = c.as<TransposeAttrs>();
  const int64_t rank = c[0].shape.rank();
  if (int64_t(a.perm.size()) != rank) {
    user_error("the permutation {} has {} entries for an operand of rank {}",
               dims_to_string(a.perm), a.perm.size(), rank);
  }
  for (int64_t& p : a.perm) p = normalize_axis(p, rank);
  return Attrs::of(c.attrs.table(), std::move(a));
}

std::vector<TensorType> infer_transpose(const InferContext& c) {
  expect_operands(c, 1);
  const auto& perm = c.as<TransposeAttrs>().perm;
  std::vector<uint8_t> seen(perm.size(), 0);
  Shape shape;
  for (int64_t p : perm) {
    if (seen[size_t(p)]++) {
      user_error("{} is not a permutation: axis {} stands twice", dims_to_string(perm), p);
    }
    shape.push_back(c[0].shape[p]);
  }
  if (is_packed(c[0].dtype) && perm.back() + 1 != c[0].shape.rank()) {
    user_error("{} moves as whole rows: the permutation {} moves the last axis",
               to_string(c[0].dtype), dims_to_string(perm));
  }
  return {{c[0].dtype, std::move(shape)}};
}

std::vector<Value> vjp_transpose(Builder& b, const RuleCall& call, std::span<const Value> g) {
  const auto& perm = call.as<TransposeAttrs>().perm;
  std::vector<int64_t> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[size_t(perm[i])] = int64_t(i);
  return {transpose(b, g[0], std::move(inverse))};
}

std::vector<Value> batch_transpose(Builder& b, const RuleCall& call, std::span<const uint8_t>,
                                   const Dim&) {
  std::vector<int64_t> perm{0};
  for (int64_t p : call.as<TransposeAttrs>().perm) perm.push_back(p + 1);
  return {transpose(b, call.operands[0], std::move(perm))};
}

// --- Expand

Attrs normalize_expand(const InferContext& c) {
  if (c.operands.empty()) return c.attrs;
  Shape shape = c.as<ExpandAttrs>().shape;
  const Shape& from = c[0].shape;
  if (shape.rank() < from.rank()) {
    user_error("cannot expand {} to {}: the target has fewer axes", from.to_string(),
               shape.to_string());
  }
  const int64_t added = shape.rank() - from.rank();
  for (int64_t i = 0; i < shape.rank(); ++i) {
    if (!shape[i].is(-1)) continue;
    if (i < added) {
      user_error("the shape {} keeps (-1) the size of axis {}, which {} does not have",
                 shape.to_string(), i, from.to_string());
    }
    shape[i] = from[i - added];
  }
  return Attrs::of(c.attrs.table(), ExpandAttrs{std::move(shape)});
}

std::vector<TensorType> infer_expand(const InferContext& c) {
  expect_operands(c, 1);
  const Shape& to = c.as<ExpandAttrs>().shape;
  const Shape& from = c[0].shape;
  expect_sizes(to, "the shape");
  const int64_t added = to.rank() - from.rank();
  for (int64_t i = 0; i < from.rank(); ++i) {
    if (from[i] != to[i + added] && !from[i].is(1)) {
      user_error("cannot expand {} to {}: axis {} has size {}, and only size 1 stretches",
                 from.to_string(), to.to_string(), i, from[i].to_string());
    }
  }
  return {{c[0].dtype, to}};
}

std::vector<Value> vjp_expand(Builder& b, const RuleCall& call, std::span<const Value> g) {
  return {unbroadcast(b, g[0], b.shape(call.operands[0]))};
}

std::vector<Value> batch_expand(Builder& b, const RuleCall& call, std::span<const uint8_t>,
                                const Dim& size) {
  const Shape& target = call.as<ExpandAttrs>().shape;
  Shape aligned = b.shape(call.operands[0]);  // [size, ...]: the new axes stand behind the batch
  while (aligned.rank() < target.rank() + 1) aligned.insert(1, 1);
  const Value x = reshape(b, call.operands[0], std::move(aligned));
  return {expand(b, x, with_leading(target, size))};
}

// --- Narrow

std::vector<TensorType> infer_narrow(const InferContext& c) {
  expect_operands(c, 1);
  const auto& a = c.as<NarrowAttrs>();
  const Dim& size = c[0].shape[a.axis];
  const Dim rest = size - a.start - a.length;
  const auto negative = [](const Dim& d) { return d.is_static() && d.value() < 0; };
  if (negative(a.start) || negative(a.length) || negative(rest)) {
    user_error("elements {} ... {} + {} are not within axis {} of size {}", a.start.to_string(),
               a.start.to_string(), a.length.to_string(), a.axis, size.to_string());
  }
  Shape shape = c[0].shape;
  if (is_packed(c[0].dtype) && a.axis + 1 == shape.rank()) {
    user_error("{} moves as whole rows: axis {} is the last", to_string(c[0].dtype), a.axis);
  }
  shape[a.axis] = a.length;
  return {{c[0].dtype, std::move(shape)}};
}

std::vector<Value> vjp_narrow(Builder& b, const RuleCall& call, std::span<const Value> g) {
  const auto& a = call.as<NarrowAttrs>();
  const Dim rest = b.shape(call.operands[0])[a.axis] - a.start - a.length;
  return {pad_axis(b, g[0], a.axis, a.start, rest, 0)};
}

// --- Copy

std::vector<TensorType> infer_copy(const InferContext& c) {
  expect_operands(c, 1);
  return {c[0]};
}

std::vector<Value> vjp_copy(Builder&, const RuleCall&, std::span<const Value> g) { return {g[0]}; }

}  // namespace

RLX_DEFINE_OP(Reshape) = {
    .name = "Reshape",
    .fields = RLX_FIELDS(ReshapeAttrs, shape),
    .flags = kView | kPackedRows,
    .doc =
        R"(y has the elements of x in row-major order under another shape.
Operands: x, any dtype; a packed one keeps its last axis. Attributes: shape; at most one size may be -1 and is then the number of
elements of x divided by the product of the others (also for symbolic sizes: [n, 4] to [-1, 2] gives
[2*n, 2]). A size 0 means an empty axis.
Errors: different numbers of elements; a -1 whose size is not a whole number, or beside a size 0.
Gradient: the cotangent in the shape of x.)",
    .infer = infer_reshape,
    .normalize = normalize_reshape,
    .jvp = jvp_linear,
    .vjp = vjp_reshape,
    .batching = batch_reshape,
    .cost = cost_view,
};

RLX_DEFINE_OP(Transpose) = {
    .name = "Transpose",
    .fields = RLX_FIELDS(TransposeAttrs, perm),
    .flags = kView | kPackedRows,
    .doc =
        R"(Permutes axes: axis k of y is axis perm[k] of x, so y[i_0, ...] = x[...] with
i_k at position perm[k].
Operands: x, any dtype; a packed one keeps its last axis. Attributes: perm, a permutation of the axes
of x (negative axes count from the end). Errors: a wrong number of entries; an axis that stands twice or is out of range.
Gradient: the inverse permutation.)",
    .infer = infer_transpose,
    .normalize = normalize_transpose,
    .jvp = jvp_linear,
    .vjp = vjp_transpose,
    .batching = batch_transpose,
    .cost = cost_view,
};

RLX_DEFINE_OP(Expand) = {
    .name = "Expand",
    .fields = RLX_FIELDS(ExpandAttrs, shape),
    .flags = kView | kPackedRows,
    .doc =
        R"(Broadcasts x to a shape: axes are aligned from the right, missing leading axes are added, and
an axis of size 1 is repeated.
Operands: x, any dtype. Attributes: shape; a size -1 keeps that of x.
Errors: fewer axes than x; an axis of x that is neither 1 nor the target's size.
Gradient: the sum over the axes that were added or repeated.)",
    .infer = infer_expand,
    .normalize = normalize_expand,
    .jvp = jvp_linear,
    .vjp = vjp_expand,
    .batching = batch_expand,
    .cost = cost_view,
};

RLX_DEFINE_OP(Narrow) = {
    .name = "Narrow",
    .fields = RLX_FIELDS(NarrowAttrs, axis, start, length),
    .flags = kView | kPackedRows,
    .doc =
        R"(The elements start ... start + length - 1 along one axis.
Operands: x, any dtype. Attributes: axis (negative counts from the end; not the last one of a packed
dtype), start and length (sizes, possibly symbolic). Errors: start or length negative, or start + length past the end; for symbolic
sizes this is checked when they are bound.
Gradient: the cotangent with zeros before and after.)",
    .infer = infer_narrow,
    .normalize = normalize_axis_of_first<NarrowAttrs>,
    .jvp = jvp_linear,
    .vjp = vjp_narrow,
    .batching = batch_leading_axis,
    .cost = cost_view,
};

RLX_DEFINE_OP(Copy) = {
    .name = "Copy",
    .fields = RLX_FIELDS(NoAttrs),
    .flags = kPackedRows,
    .doc =
        R"(y = x, in memory of its own, dense and row-major. The layout pass inserts it where a kernel
cannot read the strides of a view.
Operands: x, any dtype, packed ones too.)",
    .infer = infer_copy,
    .jvp = jvp_linear,
    .vjp = vjp_copy,
    .batching = batch_leading,
    .cost = cost_copy,
    .tail = [](const InferContext&, size_t, int64_t) { return TailRule::kIgnored; },
};

// --- Build functions

Value reshape(Builder& b, Value x, Shape shape) {
  if (b.shape(x) == shape) return x;
  return b.op(kReshapeOp, ReshapeAttrs{std::move(shape)}, {x});
}

Value transpose(Builder& b, Value x, std::vector<int64_t> perm) {
  bool identity = int64_t(perm.size()) == b.shape(x).rank();
  for (size_t i = 0; i < perm.size(); ++i) identity &= perm[i] == int64_t(i);
  if (identity) return x;
  return b.op(kTransposeOp, TransposeAttrs{std::move(perm)}, {x});
}

Value move_axis(Builder& b, Value x, int64_t from, int64_t to) {
  const int64_t rank = b.shape(x).rank();
  from = normalize_axis(from, rank);
  to = normalize_axis(to, rank);
  std::vector<int64_t> perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), 0);
  perm.erase(perm.begin() + from);
  perm.insert(perm.begin() + to, from);
  return transpose(b, x, std::move(perm));
}

Value swap_last_axes(Builder& b, Value x) {
  const int64_t rank = b.shape(x).rank();
  if (rank < 2) user_error("swapping the last two axes needs rank 2, got {}", rank);
  return move_axis(b, x, rank - 1, rank - 2);
}

Value expand(Builder& b, Value x, Shape shape) {
  if (b.shape(x) == shape) return x;
  return b.op(kExpandOp, ExpandAttrs{std::move(shape)}, {x});
}

Value unsqueeze(Builder& b, Value x, int64_t axis) {
  Shape shape = b.shape(x);
  shape.insert(normalize_axis(axis, shape.rank() + 1), 1);
  return reshape(b, x, std::move(shape));
}

Value squeeze(Builder& b, Value x, int64_t axis) {
  Shape shape = b.shape(x);
  axis = normalize_axis(axis, shape.rank());
  if (!shape[axis].is(1)) {
    user_error("cannot squeeze axis {} of {}: its size is not 1", axis, shape.to_string());
  }
  shape.erase(axis);
  return reshape(b, x, std::move(shape));
}

Value narrow(Builder& b, Value x, int64_t axis, Dim start, Dim length) {
  axis = normalize_axis(axis, b.shape(x).rank());
  if (start.is(0) && length == b.shape(x)[axis]) return x;
  return b.op(kNarrowOp, NarrowAttrs{axis, std::move(start), std::move(length)}, {x});
}

}  // namespace rlx
