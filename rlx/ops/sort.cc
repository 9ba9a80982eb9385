// Sort, ArgSort and TopK.
#include "rlx/ops/sort.h"

#include <cmath>

#include "rlx/base/error.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/gather.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(ArgSort);
RLX_USE_OP(Gather);
RLX_USE_OP(GatherBackward);
RLX_USE_OP(Sort);
RLX_USE_OP(TopK);

namespace {

// --- Inference

void check_index_dtype(DType t, const Dim& size) {
  const int64_t most = t == DType::kI64   ? INT64_MAX
                       : t == DType::kI32 ? int64_t(INT32_MAX) + 1
                       : t == DType::kF32 ? int64_t(1) << 24
                                          : 0;
  if (most == 0) user_error("index_dtype is {}, expected one of: i64 i32 f32", to_string(t));
  if (size.is_static() && size.value() > most) {
    user_error("{} cannot hold the positions of an axis of size {}", to_string(t), size.value());
  }
}

std::vector<TensorType> infer_sort(const InferContext& c) {
  expect_operands(c, 1);
  expect_dtype(c, 0, dtypes::kReals | dtypes::kBools, "x");
  const auto& a = c.as<SortAttrs>();
  check_index_dtype(a.index_dtype, c[0].shape[a.axis]);
  return {c[0], {a.index_dtype, c[0].shape}};
}

std::vector<TensorType> infer_arg_sort(const InferContext& c) { return {infer_sort(c)[1]}; }

std::vector<TensorType> infer_top_k(const InferContext& c) {
  expect_operands(c, 1);
  expect_dtype(c, 0, dtypes::kReals | dtypes::kBools, "x");
  const auto& a = c.as<TopKAttrs>();
  const Dim& size = c[0].shape[a.axis];
  check_index_dtype(a.index_dtype, size);
  if (a.k < 0 || (size.is_static() && a.k > size.value())) {
    user_error("k is {}, expected 0 to {}, the size of axis {}", a.k, size.to_string(), a.axis);
  }
  Shape shape = c[0].shape;
  shape[a.axis] = a.k;
  return {{c[0].dtype, shape}, {a.index_dtype, shape}};
}

// --- Derivatives: the values are elements of x, the indices have none.

// Indices for Gather, whatever their type, with the axis last.
Value last_indices(Builder& b, Value indices, int64_t axis) {
  if (!is_integer(b.dtype(indices))) indices = cast(b, indices, DType::kI64);
  return move_axis(b, indices, axis, -1);
}

template <class S>
std::vector<Value> jvp(Builder& b, const RuleCall& call, std::span<const Value> t) {
  if (!t[0].valid()) return {Value{}, Value{}};
  return {take_along(b, t[0], call.results[1], call.as<S>().axis), Value{}};
}

template <class S>
std::vector<Value> vjp(Builder& b, const RuleCall& call, std::span<const Value> g) {
  if (!g[0].valid()) return {Value{}};
  const int64_t axis = call.as<S>().axis;
  Shape shape = b.shape(call.operands[0]);
  const int64_t last = shape.rank() - 1;
  const Dim size = shape[axis];
  shape.erase(axis);
  shape.push_back(size);
  const Value dx = b.op(kGatherBackwardOp, GatherBackwardAttrs{last, last, std::move(shape)},
                        {move_axis(b, g[0], axis, -1), last_indices(b, call.results[1], axis)});
  return {move_axis(b, dx, -1, axis)};
}

// --- Decompositions

std::vector<Value> expand_arg_sort(Builder& b, const Attrs& attrs,
                                   std::span<const Value> operands) {
  return {sort(b, operands[0], attrs.as<SortAttrs>())[1]};
}

std::vector<Value> expand_top_k(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  const auto& a = attrs.as<TopKAttrs>();
  auto best = sort(b, operands[0], {.axis = a.axis, .descending = a.largest});
  for (Value& v : best) v = narrow(b, v, a.axis, 0, a.k);
  if (!a.sorted) {
    best[1] = sort(b, best[1], {.axis = a.axis})[0];
    best[0] = take_along(b, operands[0], best[1], a.axis);
  }
  return {best[0], cast(b, best[1], a.index_dtype)};
}

Cost cost(const CostContext& c) {
  const double n = element_count(c.operands[0]);
  return {n * std::log2(std::max(n, 2.0)), io_bytes(c)};
}

// The selection passes over x once.
Cost cost_top_k(const CostContext& c) { return {element_count(c.operands[0]), io_bytes(c)}; }

// The axis that is sorted has no neutral value: any number may be among the largest.
template <class Attributes>
TailRule tail(const InferContext& c, size_t, int64_t axis) {
  return axis == c.as<Attributes>().axis ? TailRule::kRefused : TailRule::kIgnored;
}

}  // namespace

RLX_DEFINE_OP(Sort) = {
    .name = "Sort",
    .fields = RLX_FIELDS(SortAttrs, axis, descending, stable, index_dtype),
    .doc =
        R"(Sorts along one axis. Results: values, of the type of x, and indices, of its shape: the place
along the axis that each value comes from, so that values = x taken at indices.
Operands: x, floats, integers or bool, rank 1 at least. Attributes: axis (negative counts from the end);
descending; stable; index_dtype: i64, i32, or f32 for consumers that want numbers.
Order: NaN is larger than everything, whatever its sign, and NaNs are equal; -0 equals 0; false comes
before true. Equal elements keep their order, also descending. (`stable` false would allow another
order among them; there is none that is faster, so it changes nothing.)
Errors: complex x; an index_dtype that cannot hold the positions.
Gradient: the cotangent of the values goes back to where they come from; the indices have none.
Compare: torch.sort(x, axis, descending, stable=True).)",
    .infer = infer_sort,
    .normalize = normalize_axis_of_first<SortAttrs>,
    .jvp = jvp<SortAttrs>,
    .vjp = vjp<SortAttrs>,
    .batching = batch_leading_axis,
    .cost = cost,
    .tail = tail<SortAttrs>,
};

RLX_DEFINE_OP(ArgSort) = {
    .name = "ArgSort",
    .fields = RLX_FIELDS(SortAttrs, axis, descending, stable, index_dtype),
    .doc =
        R"(The permutation that sorts along one axis: the second result of Sort, with its operands,
attributes, order and errors.
Derivative: none.
Compare: torch.argsort(x, axis, descending, stable=True).)",
    .infer = infer_arg_sort,
    .normalize = normalize_axis_of_first<SortAttrs>,
    .decompose = {.expand = expand_arg_sort},
};

RLX_DEFINE_OP(TopK) = {
    .name = "TopK",
    .fields = RLX_FIELDS(TopKAttrs, k, axis, largest, sorted, index_dtype),
    .doc =
        R"(The k largest (or smallest) elements along one axis. Results: values, of the dtype of x, and
indices, their places along the axis; both have the shape of x with k on the axis.
Operands: x, floats, integers or bool, rank 1 at least. Attributes: k, 0 to the size of the axis; axis
(negative counts from the end); largest; sorted: best first, or else in order of position;
index_dtype as in Sort.
The order is that of Sort, descending for the largest: NaN is the largest, -0 equals 0, and of equal
elements those at smaller positions are taken first.
Errors: complex x; k out of range; an index_dtype that cannot hold the positions.
Gradient: the cotangent of the values goes back to where they come from; the indices have none.
Compare: torch.topk (which leaves the choice among equal elements open), ONNX TopK.)",
    .infer = infer_top_k,
    .normalize = normalize_axis_of_first<TopKAttrs>,
    .decompose = {.expand = expand_top_k},
    .jvp = jvp<TopKAttrs>,
    .vjp = vjp<TopKAttrs>,
    .batching = batch_leading_axis,
    .cost = cost_top_k,
    .tail = tail<TopKAttrs>,
};

std::vector<Value> sort(Builder& b, Value x, SortAttrs attrs) {
  return b.call(kSortOp, Attrs::of(kSortOp.fields, attrs), {x});
}

std::vector<Value> top_k(Builder& b, Value x, TopKAttrs attrs) {
  return b.call(kTopKOp, Attrs::of(kTopKOp.fields, attrs), {x});
}

Value take_along(Builder& b, Value x, Value indices, int64_t axis) {
  const int64_t last = b.shape(x).rank() - 1;
  const Value y = b.op(kGatherOp, GatherAttrs{last, last},
                       {move_axis(b, x, axis, -1), last_indices(b, indices, axis)});
  return move_axis(b, y, -1, axis);
}

}  // namespace rlx
