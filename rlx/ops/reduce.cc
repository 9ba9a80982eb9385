#include "rlx/ops/reduce.h"

#include <algorithm>
#include <vector>

#include "rlx/base/error.h"
#include "rlx/ops/build.h"
#include "rlx/ops/compare.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Reduce);

namespace {

Attrs normalize_reduce(const InferContext& c) {
  if (c.operands.empty()) return c.attrs;
  ReduceAttrs a = c.as<ReduceAttrs>();
  for (int64_t& axis : a.axes) axis = normalize_axis(axis, c[0].shape.rank());
  std::sort(a.axes.begin(), a.axes.end());
  const auto twice = std::adjacent_find(a.axes.begin(), a.axes.end());
  if (twice != a.axes.end()) user_error("axis {} is reduced twice", *twice);
  return Attrs::of(c.attrs.table(), std::move(a));
}

DTypeSet accepted(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum:
    case ReduceKind::kProd:
      return dtypes::kNumbers;
    case ReduceKind::kMean:
      return dtypes::kFloatsComplexes;
    case ReduceKind::kMax:
    case ReduceKind::kMin:
      return dtypes::kReals | dtypes::kBools;
    case ReduceKind::kAnd:
    case ReduceKind::kOr:
      return dtypes::kBools;
  }
  internal_error("Reduce: unknown kind {}", int(kind));
}

// The shape with the axes at size 1, or without them.
Shape reduced_shape(const Shape& shape, const std::vector<int64_t>& axes, bool keep_dims) {
  Shape result;
  for (int64_t a = 0; a < shape.rank(); ++a) {
    if (!std::binary_search(axes.begin(), axes.end(), a)) {
      result.push_back(shape[a]);
    } else if (keep_dims) {
      result.push_back(1);
    }
  }
  return result;
}

std::vector<TensorType> infer_reduce(const InferContext& c) {
  expect_operands(c, 1);
  const auto& a = c.as<ReduceAttrs>();
  if (!accepted(a.kind).contains(c[0].dtype)) {
    user_error("{} does not reduce {}, only: {}", enum_name(a.kind), to_string(c[0].dtype),
               accepted(a.kind).to_string());
  }
  return {{c[0].dtype, reduced_shape(c[0].shape, a.axes, a.keep_dims)}};
}

// What the rules need of a call: x, and how to bring a reduced value back to the rank of x.
struct Reduction {
  Value x, y;
  std::vector<int64_t> axes;
  Shape full, kept;  // of x; of x with the axes at size 1

  Reduction(Builder& b, const RuleCall& call)
      : x(call.operands[0]),
        y(call.results[0]),
        axes(call.as<ReduceAttrs>().axes),
        full(b.shape(x)),
        kept(reduced_shape(full, axes, true)) {}
  Value with_kept_axes(Builder& b, Value v) const { return reshape(b, v, kept); }
  Value over_axes(Builder& b, Value v) const { return expand(b, with_kept_axes(b, v), full); }
};

// v / (number of elements per sum), in the accumulation type: the count may exceed a 16-bit float.
Value divide_by_count(Builder& b, const Reduction& r, Value v) {
  const DType dtype = b.dtype(v), wide = accumulation_dtype(dtype);
  Shape reduced;
  for (const int64_t a : r.axes) reduced.push_back(r.full[a]);
  const Dim count = reduced.num_elements();
  v = cast(b, v, wide);
  if (count.is_static()) {
    v = div(b, v, double(count.value()));
  } else {
    std::vector<int64_t> all(r.axes.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = int64_t(i);
    v = div(b, v, sum(b, splat(b, wide, std::move(reduced), 1), std::move(all)));
  }
  return cast(b, v, dtype);
}

// --- Max, Min: the elements equal to the result share alike.

struct Ties {
  Value mask;   // bool, shape of x
  Value count;  // accumulation type, axes kept
};

Ties find_ties(Builder& b, const Reduction& r) {
  const Value mask = equal(b, r.x, r.over_axes(b, r.y));
  const DType wide = accumulation_dtype(b.dtype(r.x));
  return {mask, sum(b, cast(b, mask, wide), r.axes, true)};
}

Value divide_wide(Builder& b, Value x, Value wide_divisor) {
  const Value q = div(b, cast(b, x, b.dtype(wide_divisor)), wide_divisor);
  return cast(b, q, b.dtype(x));
}

Value jvp_extremum(Builder& b, const Reduction& r, Value t, bool keep_dims) {
  const Ties ties = find_ties(b, r);
  const Value picked = sum(b, where(b, ties.mask, t, zeros_like(b, t)), r.axes, true);
  const Value mean = divide_wide(b, picked, ties.count);
  return keep_dims ? mean : reshape(b, mean, b.shape(r.y));
}

Value vjp_extremum(Builder& b, const Reduction& r, Value g) {
  const Ties ties = find_ties(b, r);
  const Value share = divide_wide(b, r.with_kept_axes(b, g), ties.count);
  return where(b, ties.mask, expand(b, share, r.full), zeros_like(b, r.x));
}

// --- Prod: the derivative with respect to one element is the product of the others. A tree of
// pairwise products gives it for all elements in O(n), right where elements are zero. As the tree
// consists of Muls, all further derivatives are right too.

// rows [R, n] times top [R, 1] but for the element itself.
Value products_of_others(Builder& b, Value rows, Value top) {
  const Dim n = b.shape(rows)[1];
  if (n.is(0)) return rows;
  const Dim lines = b.shape(rows)[0];
  struct Level {
    Value left, right;  // [R, pairs]
    int64_t size;       // before padding
  };
  std::vector<Level> levels;
  int64_t size = n.value();
  while (size > 1) {
    const int64_t pairs = (size + 1) / 2;
    const Value even = pad_axis(b, rows, 1, 0, 2 * pairs - size, 1);
    const Value pair = reshape(b, even, {lines, pairs, 2});
    const Value left = squeeze(b, narrow(b, pair, 2, 0, 1), 2);
    const Value right = squeeze(b, narrow(b, pair, 2, 1, 1), 2);
    levels.push_back({left, right, size});
    rows = mul(b, left, right);
    size = pairs;
  }
  Value others = top;
  for (size_t i = levels.size(); i-- > 0;) {
    const Level& level = levels[i];
    const Value halves[] = {unsqueeze(b, mul(b, others, level.right), 2),
                            unsqueeze(b, mul(b, others, level.left), 2)};
    const Dim pairs = b.shape(halves[0])[1];
    others = reshape(b, concat(b, halves, 2), {lines, pairs * 2});
    others = narrow(b, others, 1, 0, level.size);
  }
  return others;
}

// The same for a symbolic n, where no tree can be laid out: O(n^2) by masking, each product being a
// Reduce again.
Value products_of_others_masked(Builder& b, Value rows, Value top) {
  const Dim lines = b.shape(rows)[0], n = b.shape(rows)[1];
  const Shape square{n, n}, cube{lines, n, n};
  const Value diagonal = equal(b, iota(b, DType::kI64, square, 0), iota(b, DType::kI64, square, 1));
  const Value repeated = expand(b, unsqueeze(b, rows, 1), cube);
  const Value ones = splat(b, b.dtype(rows), cube, 1);
  const Value others = where(b, expand(b, unsqueeze(b, diagonal, 0), cube), ones, repeated);
  return mul(b, reduce(b, ReduceKind::kProd, others, {2}), top);
}

// For every element of x, `top` (axes kept) times the product of the others on its axes.
Value others_like(Builder& b, const Reduction& r, Value x, Value top) {
  std::vector<int64_t> perm, inverse(size_t(r.full.rank()));
  Dim lines(1), n(1);
  for (int64_t a = 0; a < r.full.rank(); ++a) {
    if (std::binary_search(r.axes.begin(), r.axes.end(), a)) continue;
    perm.push_back(a);
    lines = lines * r.full[a];
  }
  for (const int64_t a : r.axes) {
    perm.push_back(a);
    n = n * r.full[a];
  }
  for (size_t i = 0; i < perm.size(); ++i) inverse[size_t(perm[i])] = int64_t(i);
  const Value moved = transpose(b, x, perm);
  const Shape moved_shape = b.shape(moved);
  const Value rows = reshape(b, moved, {lines, n});
  const Value tops = reshape(b, transpose(b, top, perm), {lines, 1});
  const Value others =
      n.is_static() ? products_of_others(b, rows, tops) : products_of_others_masked(b, rows, tops);
  return transpose(b, reshape(b, others, moved_shape), inverse);
}

Value jvp_product(Builder& b, const Reduction& r, Value t, bool keep_dims) {
  const DType wide = accumulation_dtype(b.dtype(r.x));
  const Value ones = splat(b, wide, r.kept, 1);
  const Value others = others_like(b, r, cast(b, r.x, wide), ones);
  const Value total = sum(b, mul(b, others, cast(b, t, wide)), r.axes, keep_dims);
  return cast(b, total, b.dtype(r.x));
}

Value vjp_product(Builder& b, const Reduction& r, Value g) {
  const DType wide = accumulation_dtype(b.dtype(r.x));
  const Value x = conjugate(b, cast(b, r.x, wide));
  const Value top = r.with_kept_axes(b, cast(b, g, wide));
  return cast(b, others_like(b, r, x, top), b.dtype(r.x));
}

// --- The rules

std::vector<Value> jvp_reduce(Builder& b, const RuleCall& call, std::span<const Value> t) {
  const auto& a = call.as<ReduceAttrs>();
  const Reduction r(b, call);
  switch (a.kind) {
    case ReduceKind::kMax:
    case ReduceKind::kMin:
      return {jvp_extremum(b, r, t[0], a.keep_dims)};
    case ReduceKind::kProd:
      return {jvp_product(b, r, t[0], a.keep_dims)};
    default:
      return jvp_linear(b, call, t);
  }
}

std::vector<Value> vjp_reduce(Builder& b, const RuleCall& call, std::span<const Value> g) {
  const Reduction r(b, call);
  switch (call.as<ReduceAttrs>().kind) {
    case ReduceKind::kMean:
      return {r.over_axes(b, divide_by_count(b, r, g[0]))};
    case ReduceKind::kMax:
    case ReduceKind::kMin:
      return {vjp_extremum(b, r, g[0])};
    case ReduceKind::kProd:
      return {vjp_product(b, r, g[0])};
    default:
      return {r.over_axes(b, g[0])};
  }
}

std::vector<Value> batch_reduce(Builder& b, const RuleCall& call, std::span<const uint8_t>,
                                const Dim&) {
  ReduceAttrs a = call.as<ReduceAttrs>();
  for (int64_t& axis : a.axes) ++axis;
  return {b.op(kReduceOp, std::move(a), {call.operands[0]})};
}

Cost cost_reduce(const CostContext& c) { return {element_count(c.operands[0]), io_bytes(c)}; }

TailRule tail(const InferContext& c, size_t, int64_t axis) {
  const auto& a = c.as<ReduceAttrs>();
  if (std::ranges::find(a.axes, axis) == a.axes.end()) return TailRule::kIgnored;
  switch (a.kind) {
    case ReduceKind::kSum:
    case ReduceKind::kOr:
      return TailRule::kZero;
    case ReduceKind::kProd:
    case ReduceKind::kAnd:
      return TailRule::kOne;
    case ReduceKind::kMax:
      return TailRule::kLowest;
    case ReduceKind::kMin:
      return TailRule::kHighest;
    case ReduceKind::kMean:
      return TailRule::kRefused;  // divides by the size; bounded sizes make it a sum and a division
  }
  return TailRule::kRefused;
}

}  // namespace

RLX_DEFINE_OP(Reduce) = {
    .name = "Reduce",
    .fields = RLX_FIELDS(ReduceAttrs, kind, axes, keep_dims),
    .doc =
        R"(Combines all elements along a set of axes: Sum, Mean (sum / count), Max, Min, Prod,
And, Or.
Operands: x. Attributes: kind; axes (any set, negative ones count from the end; none: x itself);
keep_dims (reduced axes stay with size 1). The result has the dtype of x.
Dtypes: Sum, Prod: all numbers; Mean: floats and complex; Max, Min: reals, and bool (any, all); And, Or:
bool. 16-bit floats are summed in f32 and rounded once, integers in 64 bits and wrapped.
Edges: over no elements Sum is 0, Prod 1, Mean NaN, Max -inf (the least integer, false), Min +inf (the
largest integer, true), And true, Or false. A NaN makes Max and Min NaN. The order of a sum depends on
the number of its elements only.
Errors: an axis twice or out of range; a dtype that the kind does not take.
Gradient: Sum and Mean spread the cotangent; Max and Min divide it equally among the elements equal to
the result; Prod multiplies it by the product of the other elements, from a tree of pairwise products:
right at zeros and in every order, O(n) (O(n^2) over a symbolic size).)",
    .infer = infer_reduce,
    .normalize = normalize_reduce,
    .jvp = jvp_reduce,
    .vjp = vjp_reduce,
    .batching = batch_reduce,
    .cost = cost_reduce,
    .tail = tail,
};

Value reduce(Builder& b, ReduceKind kind, Value x, std::vector<int64_t> axes, bool keep_dims) {
  return b.op(kReduceOp, ReduceAttrs{kind, std::move(axes), keep_dims}, {x});
}

Value sum(Builder& b, Value x, std::vector<int64_t> axes, bool keep_dims) {
  return reduce(b, ReduceKind::kSum, x, std::move(axes), keep_dims);
}

Value mean(Builder& b, Value x, std::vector<int64_t> axes, bool keep_dims) {
  return reduce(b, ReduceKind::kMean, x, std::move(axes), keep_dims);
}

}  // namespace rlx
