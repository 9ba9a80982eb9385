#include "rlx/ops/dot_general.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "rlx/base/error.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(DotGeneral);

namespace {

using Axes = std::vector<int64_t>;

bool contains(const Axes& axes, int64_t a) {
  return std::find(axes.begin(), axes.end(), a) != axes.end();
}

// Axes that are neither contracted nor batch, ascending.
Axes free_axes(int64_t rank, const Axes& contracting, const Axes& batch) {
  Axes free;
  for (int64_t a = 0; a < rank; ++a) {
    if (!contains(contracting, a) && !contains(batch, a)) free.push_back(a);
  }
  return free;
}

Axes range(size_t begin, size_t count) {
  Axes r(count);
  std::iota(r.begin(), r.end(), int64_t(begin));
  return r;
}

Axes shifted(Axes axes, int64_t by) {
  for (int64_t& a : axes) a += by;
  return axes;
}

Attrs normalize_dot_general(const InferContext& c) {
  if (c.operands.size() != 2) return c.attrs;
  DotGeneralAttrs a = c.as<DotGeneralAttrs>();
  for (Axes* axes : {&a.lhs_contracting, &a.lhs_batch}) {
    for (int64_t& x : *axes) x = normalize_axis(x, c[0].shape.rank());
  }
  for (Axes* axes : {&a.rhs_contracting, &a.rhs_batch}) {
    for (int64_t& x : *axes) x = normalize_axis(x, c[1].shape.rank());
  }
  return Attrs::of(c.attrs.table(), std::move(a));
}

void expect_disjoint(const Axes& contracting, const Axes& batch, std::string_view side) {
  Axes all = contracting;
  all.insert(all.end(), batch.begin(), batch.end());
  std::sort(all.begin(), all.end());
  const auto twice = std::adjacent_find(all.begin(), all.end());
  if (twice != all.end()) user_error("axis {} of the {} operand is listed twice", *twice, side);
}

void expect_paired(const InferContext& c, const Axes& lhs, const Axes& rhs, std::string_view what) {
  if (lhs.size() != rhs.size()) {
    user_error("{} {} axes on the left, {} on the right", lhs.size(), what, rhs.size());
  }
  for (size_t i = 0; i < lhs.size(); ++i) {
    const Dim &l = c[0].shape[lhs[i]], &r = c[1].shape[rhs[i]];
    if (l == r) continue;
    user_error("{} axes differ in size: axis {} of {} has {}, axis {} of {} has {}", what, lhs[i],
               c[0].shape.to_string(), l.to_string(), rhs[i], c[1].shape.to_string(),
               r.to_string());
  }
}

std::vector<TensorType> infer_dot_general(const InferContext& c) {
  expect_operands(c, 2);
  expect_dtype(c, 0, dtypes::kNumbers, "the left operand");
  expect_same_dtype(c, 0, 1);
  const auto& a = c.as<DotGeneralAttrs>();
  expect_disjoint(a.lhs_contracting, a.lhs_batch, "left");
  expect_disjoint(a.rhs_contracting, a.rhs_batch, "right");
  expect_paired(c, a.lhs_contracting, a.rhs_contracting, "contracting");
  expect_paired(c, a.lhs_batch, a.rhs_batch, "batch");
  Shape result;
  for (const int64_t x : a.lhs_batch) result.push_back(c[0].shape[x]);
  for (const int64_t x : free_axes(c[0].shape.rank(), a.lhs_contracting, a.lhs_batch)) {
    result.push_back(c[0].shape[x]);
  }
  for (const int64_t x : free_axes(c[1].shape.rank(), a.rhs_contracting, a.rhs_batch)) {
    result.push_back(c[1].shape[x]);
  }
  if (result.rank() > kMaxRank) {
    user_error("the result {} has {} axes, at most {} are possible", result.to_string(),
               result.rank(), kMaxRank);
  }
  return {{c[0].dtype, std::move(result)}};
}

// x transposed to the axis groups in order, each joined into one axis.
Value grouped(Builder& b, Value x, std::initializer_list<Axes> groups) {
  Axes perm;
  Shape shape;
  for (const Axes& group : groups) {
    Dim size(1);
    for (const int64_t a : group) size = size * b.shape(x)[a];
    perm.insert(perm.end(), group.begin(), group.end());
    shape.push_back(size);
  }
  return reshape(b, transpose(b, x, std::move(perm)), std::move(shape));
}

std::vector<Value> decompose_dot_general(Builder& b, const Attrs& attrs,
                                         std::span<const Value> operands) {
  const auto& a = attrs.as<DotGeneralAttrs>();
  const Value x = operands[0], y = operands[1];
  const Axes x_free = free_axes(b.shape(x).rank(), a.lhs_contracting, a.lhs_batch);
  const Axes y_free = free_axes(b.shape(y).rank(), a.rhs_contracting, a.rhs_batch);
  Shape result;
  for (const int64_t axis : a.lhs_batch) result.push_back(b.shape(x)[axis]);
  for (const int64_t axis : x_free) result.push_back(b.shape(x)[axis]);
  for (const int64_t axis : y_free) result.push_back(b.shape(y)[axis]);
  if (a.lhs_batch.empty()) {
    const Value product = matmul(b, grouped(b, x, {x_free, a.lhs_contracting}),
                                 grouped(b, y, {a.rhs_contracting, y_free}));
    return {reshape(b, product, std::move(result))};
  }
  const Value product = matmul(b, grouped(b, x, {a.lhs_batch, x_free, a.lhs_contracting}),
                               grouped(b, y, {a.rhs_batch, a.rhs_contracting, y_free}));
  return {reshape(b, product, std::move(result))};
}

// Gradient of one operand: the cotangent contracted with the other operand over the other's free
// axes. `own_at` and `other_at` are where their free axes begin in the cotangent.
struct Side {
  const Axes &contracting, &batch;
  Axes free;
  int64_t rank;
  size_t at;
};

Value operand_gradient(Builder& b, const Side& own, const Side& other, Value other_value, Value g) {
  DotGeneralAttrs a;
  a.lhs_contracting = range(other.at, other.free.size());
  a.rhs_contracting = other.free;
  a.lhs_batch = range(0, own.batch.size());
  a.rhs_batch = other.batch;
  const Value raw = b.op(kDotGeneralOp, std::move(a), {g, conjugate(b, other_value)});
  // raw: batch axes, own free axes, then the contracted ones in the order of the other operand.
  Axes order(other.contracting.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    return other.contracting[size_t(i)] < other.contracting[size_t(j)];
  });
  Axes perm(static_cast<size_t>(own.rank));
  int64_t position = 0;
  for (const int64_t axis : own.batch) perm[size_t(axis)] = position++;
  for (const int64_t axis : own.free) perm[size_t(axis)] = position++;
  for (const int64_t i : order) perm[size_t(own.contracting[size_t(i)])] = position++;
  return transpose(b, raw, std::move(perm));
}

std::vector<Value> vjp_dot_general(Builder& b, const RuleCall& call, std::span<const Value> g) {
  const auto& a = call.as<DotGeneralAttrs>();
  const Value x = call.operands[0], y = call.operands[1];
  Side lhs{a.lhs_contracting, a.lhs_batch, {}, b.shape(x).rank(), a.lhs_batch.size()};
  lhs.free = free_axes(lhs.rank, a.lhs_contracting, a.lhs_batch);
  Side rhs{a.rhs_contracting, a.rhs_batch, {}, b.shape(y).rank(), lhs.at + lhs.free.size()};
  rhs.free = free_axes(rhs.rank, a.rhs_contracting, a.rhs_batch);
  return {operand_gradient(b, lhs, rhs, y, g[0]), operand_gradient(b, rhs, lhs, x, g[0])};
}

std::vector<Value> batch_dot_general(Builder& b, const RuleCall& call,
                                     std::span<const uint8_t> batched, const Dim&) {
  DotGeneralAttrs a = call.as<DotGeneralAttrs>();
  const Value x = call.operands[0], y = call.operands[1];
  const size_t free = size_t(b.shape(x).rank()) - a.lhs_contracting.size() - a.lhs_batch.size();
  for (Axes* axes : {&a.lhs_contracting, &a.lhs_batch}) *axes = shifted(*axes, batched[0]);
  for (Axes* axes : {&a.rhs_contracting, &a.rhs_batch}) *axes = shifted(*axes, batched[1]);
  if (batched[0] && batched[1]) {
    a.lhs_batch.insert(a.lhs_batch.begin(), 0);
    a.rhs_batch.insert(a.rhs_batch.begin(), 0);
    return {b.op(kDotGeneralOp, std::move(a), {x, y})};
  }
  // The batch axis becomes the first free axis of its operand.
  const int64_t at = int64_t(a.lhs_batch.size() + (batched[1] ? free : 0));
  return {move_axis(b, b.op(kDotGeneralOp, std::move(a), {x, y}), at, 0)};
}

Cost cost_dot_general(const CostContext& c) {
  double per_element = is_complex(c.operands[0].dtype) ? 8 : 2;
  for (const int64_t a : c.attrs.as<DotGeneralAttrs>().lhs_contracting) {
    per_element *= double(c.operands[0].shape[a].value());
  }
  return {per_element * element_count(c.results[0]), io_bytes(c)};
}

TailRule tail(const InferContext& c, size_t operand, int64_t axis) {
  const auto& a = c.as<DotGeneralAttrs>();
  const auto& summed = operand == 0 ? a.lhs_contracting : a.rhs_contracting;
  return std::ranges::find(summed, axis) != summed.end() ? TailRule::kZero : TailRule::kIgnored;
}

}  // namespace

RLX_DEFINE_OP(DotGeneral) = {
    .name = "DotGeneral",
    .fields = RLX_FIELDS(DotGeneralAttrs, lhs_contracting, rhs_contracting, lhs_batch, rhs_batch),
    .doc =
        R"(Product of two tensors with any contracted and batch axes:
y[b, i, j] = sum over c of lhs[b, i, c] rhs[b, j, c].
Operands: lhs, rhs of one dtype (all numbers) and any ranks. Attributes: lhs_contracting with
rhs_contracting and lhs_batch with rhs_batch list pairs of axes of equal size (negative ones count from
the end); an axis stands in one list at most. The result has the batch axes in the order listed, then
the other axes of lhs, then those of rhs, both ascending. Without contracted axes it is an outer
product; over an empty axis it is 0. Precision as in MatMul.
Errors: lists of different lengths; an axis listed twice or out of range; paired axes of different
sizes; different dtypes; more axes in the result than a shape can have.
Decomposes into Transpose, Reshape, MatMul, Reshape.
Gradient: the cotangent contracted with the (conjugated) other operand over the other's free axes.)",
    .infer = infer_dot_general,
    .normalize = normalize_dot_general,
    .decompose = {.expand = decompose_dot_general},
    .jvp = jvp_multilinear,
    .vjp = vjp_dot_general,
    .batching = batch_dot_general,
    .cost = cost_dot_general,
    .tail = tail,
};

Value dot_general(Builder& b, Value lhs, Value rhs, DotGeneralAttrs attrs) {
  return b.op(kDotGeneralOp, std::move(attrs), {lhs, rhs});
}

}  // namespace rlx
