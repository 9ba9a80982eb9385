#include "rlx/ops/pool.h"

#include <limits>

#include "rlx/ops/build.h"
#include "rlx/ops/conv.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/reduce.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Pool);
RLX_USE_OP(MaxPoolSelect);
RLX_USE_OP(MaxPool2dBackward);

Window pool_window(const PoolAttrs& a) {
  return {a.kernel_size, a.stride, a.padding, Dims(a.kernel_size.size(), 1)};
}

Window pool_window(const MaxPoolAttrs& a) {
  return {a.kernel_size, a.stride, a.padding, Dims(a.kernel_size.size(), 1)};
}

namespace {

MaxPoolAttrs geometry(const PoolAttrs& a) { return {a.kernel_size, a.stride, a.padding}; }

template <class S>
Attrs normalize(const InferContext& c) {
  S a = c.as<S>();
  if (a.stride.empty()) a.stride = a.kernel_size;
  default_padding(a.padding, int64_t(a.kernel_size.size()));
  return Attrs::of(c.attrs.table(), std::move(a));
}

// Kernels keep a table of the cells of a window, and count them in f32.
constexpr int64_t kMostCells = int64_t{1} << 24;

Shape pool_shape(const TensorType& x, const Window& w) {
  check_window(w, spatial_rank(x, "x"));
  if (w.area() > kMostCells) {
    user_error("kernel_size {} covers {} cells, expected at most {}",
               Shape(std::span<const int64_t>(w.kernel)).to_string(), w.area(), kMostCells);
  }
  return window_result(x.shape, x.shape[1], w);
}

std::vector<TensorType> infer(const InferContext& c) {
  expect_operands(c, 1);
  expect_dtype(c, 0, dtypes::kFloats, "x");
  return {{c[0].dtype, pool_shape(c[0], pool_window(c.as<PoolAttrs>()))}};
}

double identity_of(PoolKind kind) {
  switch (kind) {
    case PoolKind::kMax:
      return -std::numeric_limits<double>::infinity();
    case PoolKind::kMin:
      return std::numeric_limits<double>::infinity();
    case PoolKind::kProd:
      return 1;
    case PoolKind::kMean:
    case PoolKind::kSum:
      return 0;
  }
  return 0;
}

ReduceKind reduction_of(PoolKind kind) {
  switch (kind) {
    case PoolKind::kMax:
      return ReduceKind::kMax;
    case PoolKind::kMin:
      return ReduceKind::kMin;
    case PoolKind::kProd:
      return ReduceKind::kProd;
    case PoolKind::kMean:
    case PoolKind::kSum:
      return ReduceKind::kSum;
  }
  return ReduceKind::kSum;
}

// The kernel axes of windows(): [N, C, o1, k1, o2, k2, ...].
std::vector<int64_t> kernel_axes(const Window& w) {
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < w.rank(); ++i) axes.push_back(3 + 2 * i);
  return axes;
}

// How many cells of an image each window covers, at least 1: [1, 1, o...].
Value window_cells(Builder& b, const Shape& image, const Window& w, DType dtype) {
  Shape ones{1, 1};
  for (int64_t i = 0; i < w.rank(); ++i) ones.push_back(image[2 + i]);
  const Value cells = sum(b, windows(b, splat(b, dtype, ones, 1), w, 0), kernel_axes(w));
  return maximum(b, cells, scalar(b, dtype, 1));
}

// v divided by what Mean divides by, rounded once to the dtype of v.
Value divide_by_area(Builder& b, Value v, const Shape& image, const PoolAttrs& a) {
  const DType wide = accumulation_dtype(b.dtype(v));
  const Window w = pool_window(a);
  const Value wide_v = cast(b, v, wide);
  const Value quotient = a.count_include_pad ? div(b, wide_v, double(w.area()))
                                             : div(b, wide_v, window_cells(b, image, w, wide));
  return cast(b, quotient, b.dtype(v));
}

std::vector<Value> expand_pool(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  const auto& a = attrs.as<PoolAttrs>();
  const Window w = pool_window(a);
  const Value cells = windows(b, operands[0], w, identity_of(a.kind));
  const Value y = reduce(b, reduction_of(a.kind), cells, kernel_axes(w));
  return {a.kind == PoolKind::kMean ? divide_by_area(b, y, b.shape(operands[0]), a) : y};
}

// The node that made `v`, as derivative rules want to see it.
RuleCall call_of(Builder& b, const Value& v) {
  const Node& n = b.graph().node(v);
  return {*n.op, n.attrs, n.operands, {&v, 1}};
}

// Prod has no kernel for its derivatives: those of its two steps, the windows (linear) and Reduce.
std::vector<Value> jvp_prod(Builder& b, const RuleCall& call, Value tangent) {
  const Window w = pool_window(call.as<PoolAttrs>());
  const Value cells = windows(b, call.operands[0], w, 1);
  const Value y = reduce(b, ReduceKind::kProd, cells, kernel_axes(w));
  const Value moved = windows(b, tangent, w, 0);
  const RuleCall step = call_of(b, y);
  return step.op.jvp(b, step, {&moved, 1});
}

// The gradient of the windows goes back to x as the adjoint of a depthwise convolution whose output
// channels are the cells of the window.
std::vector<Value> vjp_prod(Builder& b, const RuleCall& call, Value dy) {
  const Window w = pool_window(call.as<PoolAttrs>());
  const Value x = call.operands[0];
  const Shape shape = b.shape(x);
  const Value cells = windows(b, x, w, 1);
  const Value y = reduce(b, ReduceKind::kProd, cells, kernel_axes(w));
  const RuleCall step = call_of(b, y);
  Value g = step.op.vjp(b, step, {&dy, 1})[0];

  std::vector<int64_t> perm = {0, 1};
  for (int64_t axis : kernel_axes(w)) perm.push_back(axis);
  for (int64_t axis : kernel_axes(w)) perm.push_back(axis - 1);
  const Dim area = w.area();
  g = join_axes(b, transpose(b, g, perm), 1, 1 + w.rank());  // [N, C * area, o...]
  const DType dtype = b.dtype(x);
  const Value one_hot = cast(b,
                             equal(b, iota(b, DType::kI64, Shape{area, area}, 0),
                                   iota(b, DType::kI64, Shape{area, area}, 1)),
                             dtype);
  Shape kernel{shape[1], area, 1}, weight{shape[1] * area, 1};
  for (int64_t k : w.kernel) kernel.push_back(k), weight.push_back(k);
  const Value taps =
      expand(b, reshape(b, one_hot, Shape{1, area, 1, area}), Shape{shape[1], area, 1, area});
  return {conv_backward_input(b, g, reshape(b, taps, weight),
                              {w.stride, w.padding, w.dilation, shape[1]}, shape)};
}

std::vector<Value> jvp(Builder& b, const RuleCall& call, std::span<const Value> tangents) {
  const auto& a = call.as<PoolAttrs>();
  const Value x = call.operands[0], t = tangents[0];
  switch (a.kind) {
    case PoolKind::kMax:
      return {max_pool_select(b, x, t, geometry(a))};
    case PoolKind::kMin:
      return {max_pool_select(b, neg(b, x), t, geometry(a))};
    case PoolKind::kMean:
    case PoolKind::kSum:
      return {pool(b, t, a)};
    case PoolKind::kProd:
      return jvp_prod(b, call, t);
  }
  return {};
}

std::vector<Value> vjp(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  const auto& a = call.as<PoolAttrs>();
  const Value x = call.operands[0];
  Value dy = cotangents[0];
  switch (a.kind) {
    case PoolKind::kMax:
      return {max_pool_backward(b, x, dy, geometry(a))};
    case PoolKind::kMin:
      return {max_pool_backward(b, neg(b, x), dy, geometry(a))};
    case PoolKind::kProd:
      return vjp_prod(b, call, dy);
    case PoolKind::kMean:
      dy = divide_by_area(b, dy, b.shape(x), a);
      [[fallthrough]];
    case PoolKind::kSum:
      break;
  }
  const Shape shape = b.shape(x);
  Shape kernel{shape[1], 1};
  for (int64_t k : a.kernel_size) kernel.push_back(k);
  const ConvAttrs depthwise{a.stride, a.padding, {}, shape[1]};
  return {conv_backward_input(b, dy, splat(b, b.dtype(x), kernel, 1), depthwise, shape)};
}

// A batch of images is more images.
std::vector<Value> batch(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                         const Dim& size) {
  std::vector<Value> folded;
  Dim n;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const Value v = with_batch(b, call.operands[i], batched[i], size);
    n = b.shape(v)[1];
    folded.push_back(join_axes(b, v, 0, 2));
  }
  return {split_axis(b, b.call(call.op, call.attrs, folded)[0], 0, {size, n})};
}

Cost cost(const CostContext& c) {
  const double area = double(pool_window(c.attrs.as<PoolAttrs>()).area());
  return {area * element_count(c.results[0]), io_bytes(c)};
}

std::vector<TensorType> infer_select(const InferContext& c) {
  expect_operands(c, 2);
  expect_dtype(c, 0, dtypes::kFloats, "x");
  expect_same_type(c, 0, 1);
  return {{c[0].dtype, pool_shape(c[0], pool_window(c.as<MaxPoolAttrs>()))}};
}

std::vector<TensorType> infer_backward(const InferContext& c) {
  expect_operands(c, 2);
  expect_dtype(c, 0, dtypes::kFloats, "x");
  expect_same_dtype(c, 0, 1);
  const Shape expected = pool_shape(c[0], pool_window(c.as<MaxPoolAttrs>()));
  if (c[1].shape != expected) {
    user_error("dy is {}, but pooling {} gives {}", c[1].shape.to_string(), c[0].shape.to_string(),
               expected.to_string());
  }
  return {c[0]};
}

// Both are linear in the second operand and constant, almost everywhere, in x.
std::vector<Value> jvp_second(Builder& b, const RuleCall& call, std::span<const Value> tangents) {
  if (!tangents[1].valid()) return {Value{}};
  return b.call(call.op, call.attrs, {call.operands[0], tangents[1]});
}

std::vector<Value> vjp_select(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  return {Value{}, max_pool_backward(b, call.operands[0], cotangents[0], call.as<MaxPoolAttrs>())};
}

std::vector<Value> vjp_backward(Builder& b, const RuleCall& call,
                                std::span<const Value> cotangents) {
  return {Value{}, max_pool_select(b, call.operands[0], cotangents[0], call.as<MaxPoolAttrs>())};
}

Cost cost_max(const CostContext& c) {
  const Window w = pool_window(c.attrs.as<MaxPoolAttrs>());
  double count = element_count(c.results[0]);
  for (const TensorType& t : c.operands) count = std::min(count, element_count(t));
  return {double(w.area()) * count, io_bytes(c)};
}

TailRule tail(const InferContext&, size_t, int64_t axis) {
  return axis < 2 ? TailRule::kIgnored : TailRule::kRefused;
}

}  // namespace

RLX_DEFINE_OP(Pool) = {
    .name = "Pool",
    .fields = RLX_FIELDS(PoolAttrs, kind, kernel_size, stride, padding, count_include_pad),
    .doc = R"(Reduces sliding windows over 1 to 3 spatial axes.

x [N, C, s1, ...] of a float type gives y [N, C, o1, ...], o = floor((s + before + after - k) /
stride) + 1. Each result is taken over the cells of its window that lie in x:
  Max, Min: the largest and the smallest; -inf and +inf of no cell; a NaN makes the result NaN.
  Sum, Prod: 0 and 1 of no cell.
  Mean: the sum divided by the kernel area, or, without count_include_pad, by the number of cells
        in x (0 of no cell).
stride defaults to kernel_size. padding: one value per axis for both sides, or all values before the
axes followed by all values after them; default 0. f16 and bf16 are accumulated in f32.
Errors: other ranks, lists of another length, a window that does not fit or has more than 2^24
cells, padding above 2^20.
Derivatives: Max and Min give the gradient to the first extreme cell in row-major order (a NaN
counts as extreme); Sum and Mean spread it; Prod is exact where cells are 0.
Compare: torch.nn.functional.max_pool and avg_pool, jax.lax.reduce_window, ONNX MaxPool and
AveragePool.)",
    .infer = infer,
    .normalize = normalize<PoolAttrs>,
    .decompose = {.expand = expand_pool},
    .jvp = jvp,
    .vjp = vjp,
    .batching = batch,
    .cost = cost,
    .tail = tail,
};

RLX_DEFINE_OP(MaxPoolSelect) = {
    .name = "MaxPoolSelect",
    .fields = RLX_FIELDS(MaxPoolAttrs, kernel_size, stride, padding),
    .doc = R"(Takes t where a max pooling of x would take x; 1 to 3 spatial axes.

x and t of one type [N, C, s1, ...] give y [N, C, o1, ...]: t at the first cell, in row-major order,
that is largest in the window of x. A NaN is larger than all numbers. 0 where a window has no cell.
Attributes and errors as Pool's. Linear in t, with MaxPool2dBackward as its transpose; no gradient
reaches x.)",
    .infer = infer_select,
    .normalize = normalize<MaxPoolAttrs>,
    .jvp = jvp_second,
    .vjp = vjp_select,
    .batching = batch,
    .cost = cost_max,
};

RLX_DEFINE_OP(MaxPool2dBackward) = {
    .name = "MaxPool2dBackward",
    .fields = RLX_FIELDS(MaxPoolAttrs, kernel_size, stride, padding),
    .doc = R"(The gradient of Pool with kind Max; 1 to 3 spatial axes.

x [N, C, s1, ...] and dy [N, C, o1, ...] of one float type give dx of the type of x: each window
adds its dy at its first largest cell of x in row-major order. A NaN is larger than all numbers. A
window without a cell adds nothing. f16 and bf16 are accumulated in f32.
Attributes are those of the forward call. Errors: those of Pool; dy is not of the pooled shape.
Linear in dy, with MaxPoolSelect as its transpose; no gradient reaches x.
Compare: the gradient of torch.nn.functional.max_pool2d.)",
    .infer = infer_backward,
    .normalize = normalize<MaxPoolAttrs>,
    .jvp = jvp_second,
    .vjp = vjp_backward,
    .batching = batch,
    .cost = cost_max,
};

Value pool(Builder& b, Value x, PoolAttrs attrs) { return b.op(kPoolOp, std::move(attrs), {x}); }

Value max_pool_select(Builder& b, Value x, Value t, const MaxPoolAttrs& attrs) {
  return b.op(kMaxPoolSelectOp, attrs, {x, t});
}

Value max_pool_backward(Builder& b, Value x, Value dy, const MaxPoolAttrs& attrs) {
  return b.op(kMaxPool2dBackwardOp, attrs, {x, dy});
}

}  // namespace rlx
