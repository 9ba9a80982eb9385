#include "rlx/ops/dynamic_slice.h"

#include <algorithm>
#include <numeric>

#include "rlx/base/error.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(DynamicSlice);
RLX_USE_OP(DynamicUpdateSlice);

namespace {

template <class S>
Attrs normalize(const InferContext& c) {
  if (c.operands.empty()) return c.attrs;
  S a = c.as<S>();
  const int64_t rank = c[0].shape.rank();
  if (a.axes.empty() && a.batch_dims >= 0 && a.batch_dims < rank) {
    a.axes.resize(size_t(rank - a.batch_dims));
    std::iota(a.axes.begin(), a.axes.end(), a.batch_dims);
  }
  for (int64_t& axis : a.axes) axis = normalize_axis(axis, rank);
  return Attrs::of(c.attrs.table(), std::move(a));
}

// The attributes against an operand x, and the starts, operand i.
void check_starts(const InferContext& c, const std::vector<int64_t>& axes, int64_t batch_dims,
                  size_t i) {
  expect_dtype(c, 0, dtypes::kAny, "x");
  const Shape& x = c[0].shape;
  if (batch_dims < 0 || batch_dims > x.rank()) {
    user_error("batch_dims is {}, expected 0 to {}", batch_dims, x.rank());
  }
  for (size_t k = 0; k < axes.size(); ++k) {
    const int64_t least = k == 0 ? batch_dims : axes[k - 1] + 1;
    if (axes[k] < least) {
      user_error("the axes {} must ascend and stand behind {} batch axes", dims_to_string(axes),
                 batch_dims);
    }
  }
  expect_dtype(c, i, DType::kI64, "starts");
  Shape expected = x.slice(0, batch_dims);
  expected.push_back(int64_t(axes.size()));
  if (c[i].shape != expected) {
    user_error("starts has the shape {}, expected {}: one number for each of the axes {}",
               c[i].shape.to_string(), expected.to_string(), dims_to_string(axes));
  }
}

// A window of this size has a place on the axis of x.
void check_size(const Shape& x, int64_t axis, const Dim& size) {
  const auto negative = [](const Dim& d) { return d.is_static() && d.value() < 0; };
  if (negative(size) || negative(x[axis] - size)) {
    user_error("a window of size {} does not fit axis {} of {}", size.to_string(), axis,
               x.to_string());
  }
}

std::vector<TensorType> infer_slice(const InferContext& c) {
  expect_operands(c, 2);
  const auto& a = c.as<DynamicSliceAttrs>();
  check_starts(c, a.axes, a.batch_dims, 1);
  if (a.sizes.rank() != int64_t(a.axes.size())) {
    user_error("sizes is {}, expected one size for each of the axes {}", a.sizes.to_string(),
               dims_to_string(a.axes));
  }
  Shape shape = c[0].shape;
  for (size_t k = 0; k < a.axes.size(); ++k) {
    check_size(c[0].shape, a.axes[k], a.sizes[int64_t(k)]);
    shape[a.axes[k]] = a.sizes[int64_t(k)];
  }
  return {{c[0].dtype, std::move(shape)}};
}

std::vector<TensorType> infer_update(const InferContext& c) {
  expect_operands(c, 3);
  const auto& a = c.as<DynamicUpdateSliceAttrs>();
  check_starts(c, a.axes, a.batch_dims, 2);
  expect_same_dtype(c, 0, 1);
  const Shape &x = c[0].shape, &update = c[1].shape;
  expect_rank(c, 1, x.rank(), "update");
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    if (std::find(a.axes.begin(), a.axes.end(), axis) != a.axes.end()) {
      check_size(x, axis, update[axis]);
    } else if (update[axis] != x[axis]) {
      user_error("target {} and update {} differ on axis {}, which has no start", x.to_string(),
                 update.to_string(), axis);
    }
  }
  return {c[0]};
}

Shape sizes_on(const Shape& shape, const std::vector<int64_t>& axes) {
  Shape sizes;
  for (int64_t axis : axes) sizes.push_back(shape[axis]);
  return sizes;
}

Value update_slice(Builder& b, const RuleCall& call, Value target, Value update) {
  return b.call1(kDynamicUpdateSliceOp, call.attrs, {target, update, call.operands[2]});
}

std::vector<Value> jvp_slice(Builder& b, const RuleCall& call, std::span<const Value> t) {
  if (!t[0].valid()) return {Value{}};
  return {b.call1(call.op, call.attrs, {t[0], call.operands[1]})};
}

std::vector<Value> vjp_slice(Builder& b, const RuleCall& call, std::span<const Value> g) {
  const auto& a = call.as<DynamicSliceAttrs>();
  return {b.op(kDynamicUpdateSliceOp, DynamicUpdateSliceAttrs{a.axes, a.batch_dims},
               {zeros_like(b, call.operands[0]), g[0], call.operands[1]}),
          Value{}};
}

std::vector<Value> jvp_update(Builder& b, const RuleCall& call, std::span<const Value> t) {
  if (!t[0].valid() && !t[1].valid()) return {Value{}};
  return {update_slice(b, call, t[0].valid() ? t[0] : zeros_like(b, call.operands[0]),
                       t[1].valid() ? t[1] : zeros_like(b, call.operands[1]))};
}

std::vector<Value> vjp_update(Builder& b, const RuleCall& call, std::span<const Value> g) {
  const auto& a = call.as<DynamicUpdateSliceAttrs>();
  const Value update = call.operands[1];
  return {update_slice(b, call, g[0], zeros_like(b, update)),
          b.op(kDynamicSliceOp,
               DynamicSliceAttrs{a.axes, sizes_on(b.shape(update), a.axes), a.batch_dims},
               {g[0], call.operands[2]}),
          Value{}};
}

// The starts are the last operand: shared by the lanes where they can be.
template <class S>
std::vector<Value> batch(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                         const Dim& size) {
  S a = call.as<S>();
  std::vector<Value> operands(call.operands.begin(), call.operands.end());
  const size_t starts = operands.size() - 1;
  for (size_t i = 0; i < starts; ++i) {
    operands[i] = with_batch(b, operands[i], batched[i] != 0, size);
  }
  // Nothing but batch axes: the window is all of x. (An empty list would now name the new axis.)
  if (a.axes.empty()) return {operands[starts - 1]};
  if (batched[starts] || a.batch_dims > 0) {
    ++a.batch_dims;
    operands[starts] = with_batch(b, operands[starts], batched[starts] != 0, size);
  }
  for (int64_t& axis : a.axes) ++axis;
  return b.call(call.op, Attrs::of(call.attrs.table(), std::move(a)), operands);
}

Cost cost_slice(const CostContext& c) {
  const TensorType& y = c.results[0];
  return {0, 2 * element_count(y) * double(size_of(y.dtype))};
}

// In place: only the window moves.
Cost cost_update(const CostContext& c) {
  const TensorType& update = c.operands[1];
  return {0, 2 * element_count(update) * double(size_of(update.dtype))};
}

// A scalar start of the one axis.
Value as_starts(Builder& b, Value starts) {
  return b.shape(starts).rank() == 0 ? reshape(b, starts, {1}) : starts;
}

}  // namespace

RLX_DEFINE_OP(DynamicSlice) = {
    .name = "DynamicSlice",
    .fields = RLX_FIELDS(DynamicSliceAttrs, axes, sizes, batch_dims),
    .doc =
        R"(A window of x whose place is known at run time: y[i] = x[i + start] on the listed axes.
Operands: x, any dtype; starts, i64, x.shape[:batch_dims] + [number of axes]: for every position of the
batch axes its own. Attributes: axes, ascending, behind the batch axes (none: all of these; negative
count from the end); sizes, those of the window on these axes; batch_dims.
A window that leaves x is an error at run time. (JAX moves it back inside, which hides mistakes.)
Negative starts do not count from the end.
Errors: starts of another type or shape; a window larger than x.
Gradient: DynamicUpdateSlice of the cotangent in zeros.)",
    .infer = infer_slice,
    .normalize = normalize<DynamicSliceAttrs>,
    .jvp = jvp_slice,
    .vjp = vjp_slice,
    .batching = batch<DynamicSliceAttrs>,
    .cost = cost_slice,
};

RLX_DEFINE_OP(DynamicUpdateSlice) = {
    .name = "DynamicUpdateSlice",
    .fields = RLX_FIELDS(DynamicUpdateSliceAttrs, axes, batch_dims),
    .doc =
        R"(target with a window replaced by update, at a place that is known at run time.
Operands: target, any dtype; update, of its dtype and rank, the size of the window on the listed axes
and that of target on all others; starts, i64, target.shape[:batch_dims] + [number of axes].
Attributes: axes and batch_dims as in DynamicSlice. Result: the type of target. Where target is not
needed any more the window is written in its memory, at a cost that does not depend on the rest.
A window that leaves target is an error at run time, and nothing is written. (JAX moves it back inside.)
Errors: starts of another type or shape; an update of another dtype or that does not fit.
Gradient: for target the cotangent with zeros in the window, for update DynamicSlice of it.)",
    .infer = infer_update,
    .normalize = normalize<DynamicUpdateSliceAttrs>,
    .jvp = jvp_update,
    .vjp = vjp_update,
    .batching = batch<DynamicUpdateSliceAttrs>,
    .cost = cost_update,
};

Value dynamic_slice(Builder& b, Value x, Value starts, DynamicSliceAttrs attrs) {
  return b.op(kDynamicSliceOp, std::move(attrs), {x, as_starts(b, starts)});
}

Value dynamic_update_slice(Builder& b, Value target, Value update, Value starts,
                           DynamicUpdateSliceAttrs attrs) {
  return b.op(kDynamicUpdateSliceOp, std::move(attrs), {target, update, as_starts(b, starts)});
}

}  // namespace rlx
