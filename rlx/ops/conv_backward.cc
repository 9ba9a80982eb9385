// The two adjoints of Conv. Each of the three is bilinear, and they are closed under
// differentiation: every gradient of one is a call of another.
#include "rlx/ops/build.h"
#include "rlx/ops/conv.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Conv2dBackwardInput);
RLX_USE_OP(Conv2dBackwardWeight);

namespace {

Attrs normalize(const InferContext& c) {
  ConvBackwardAttrs a = c.as<ConvBackwardAttrs>();
  normalize_conv(a, a.shape.rank() - 2);
  return Attrs::of(c.attrs.table(), std::move(a));
}

// Throws unless `dy` is what Conv gives for x and w.
void check_dy(const TensorType& x, const TensorType& w, const TensorType& dy, const ConvAttrs& a) {
  const Shape expected = conv_shape(x, w, a);
  if (dy.shape != expected) {
    user_error("dy is {}, but the convolution of {} with {} gives {}", dy.shape.to_string(),
               x.shape.to_string(), w.shape.to_string(), expected.to_string());
  }
}

std::vector<TensorType> infer_input(const InferContext& c) {
  expect_operands(c, 2);
  expect_dtype(c, 0, dtypes::kFloats, "dy");
  expect_same_dtype(c, 0, 1);
  const auto& a = c.as<ConvBackwardAttrs>();
  const TensorType x{c[0].dtype, a.shape};
  check_dy(x, c[1], c[0], forward_attrs(a));
  return {x};
}

std::vector<TensorType> infer_weight(const InferContext& c) {
  expect_operands(c, 2);
  expect_dtype(c, 0, dtypes::kFloats, "x");
  expect_same_dtype(c, 0, 1);
  const auto& a = c.as<ConvBackwardAttrs>();
  const TensorType w{c[0].dtype, a.shape};
  check_dy(c[0], w, c[1], forward_attrs(a));
  return {w};
}

// Removes (negative) or adds (positive) cells at both ends of an axis.
Value resize_axis(Builder& b, Value x, int64_t axis, int64_t before, int64_t after) {
  x = pad_axis(b, x, axis, std::max<int64_t>(before, 0), std::max<int64_t>(after, 0), 0);
  const int64_t cut = std::max<int64_t>(-before, 0), cut_after = std::max<int64_t>(-after, 0);
  if (cut == 0 && cut_after == 0) return x;
  return narrow(b, x, axis, cut, b.shape(x)[axis] - Dim(cut + cut_after));
}

// w [Co, Cig, k...] as [Ci, Cog, k...] with every kernel axis reversed.
Value adjoint_weight(Builder& b, Value w, const Dim& groups) {
  const Shape shape = b.shape(w);
  Value v = split_axis(b, w, 0, {groups, divide(shape[0], groups)});
  v = join_axes(b, move_axis(b, v, 1, 2), 0, 2);
  for (int64_t axis = 2; axis < shape.rank(); ++axis) {
    const int64_t k = shape[axis].value();
    if (k == 1) continue;
    const Value reversed = sub(b, splat(b, DType::kI64, Shape{Dim(k)}, double(k - 1)),
                               iota(b, DType::kI64, Shape{Dim(k)}, 0));
    v = gather(b, v, reversed, axis);
  }
  return v;
}

// dy with stride - 1 zeros between its cells, then the convolution with the reversed weight: every
// output cell meets exactly the products of its definition, the others are zeros. (A record on Conv
// would need x, which this op does not have.)
std::vector<Value> expand_input(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  const auto& a = attrs.as<ConvBackwardAttrs>();
  Value dy = operands[0];
  const Value w = operands[1];
  const Window window = conv_window(forward_attrs(a), kernel_of(b.shape(w)));
  ConvAttrs forward{{}, {}, a.dilation, a.groups};
  for (int64_t i = 0; i < window.rank(); ++i) {
    const int64_t axis = 2 + i, stride = window.stride[size_t(i)], reach = window.span(i) - 1;
    const Dim size = a.shape[axis], count = b.shape(dy)[axis];
    if (size.is(0)) return {splat(b, b.dtype(dy), a.shape, 0)};
    const Dim dilated = (count - Dim(1)) * Dim(stride) + Dim(1);
    if (stride > 1 && !count.is(1)) {
      dy = pad_axis(b, unsqueeze(b, dy, axis + 1), axis + 1, 0, stride - 1, 0);
      dy = narrow(b, join_axes(b, dy, axis, 2), axis, 0, dilated);
    }
    // Cells of x that the last window starts before but no window reaches: 0 to stride - 1.
    const Dim padded = size + Dim(window.before(i) + window.after(i));
    dy = pad_axis(b, dy, axis, 0, padded - Dim(reach) - dilated, 0);
    dy = resize_axis(b, dy, axis, reach - window.before(i), reach - window.after(i));
  }
  return {conv(b, dy, adjoint_weight(b, w, a.groups), forward)};
}

// dy [G, Cog, N * area] times the patches of x [G, N * area, depth].
std::vector<Value> expand_weight(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  const auto& a = attrs.as<ConvBackwardAttrs>();
  const Value x = operands[0], dy = operands[1];
  const Window window = conv_window(forward_attrs(a), kernel_of(a.shape));
  Value patches = conv_patches(b, x, window, a.groups);  // [N, G, depth, area]
  const Dim area = b.shape(patches)[3];
  patches = join_axes(b, transpose(b, patches, {1, 0, 3, 2}), 1, 2);
  const Dim per_group = divide(a.shape[0], a.groups);
  Value rows = reshape(b, dy, Shape{b.shape(dy)[0], a.groups, per_group, area});
  rows = join_axes(b, transpose(b, rows, {1, 2, 0, 3}), 2, 2);
  return {reshape(b, matmul(b, rows, patches), a.shape)};
}

std::vector<Value> vjp_input(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  const ConvAttrs a = forward_attrs(call.as<ConvBackwardAttrs>());
  const Value dy = call.operands[0], w = call.operands[1], g = cotangents[0];
  return {conv(b, g, w, a), conv_backward_weight(b, g, dy, a, b.shape(w))};
}

std::vector<Value> vjp_weight(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  const ConvAttrs a = forward_attrs(call.as<ConvBackwardAttrs>());
  const Value x = call.operands[0], dy = call.operands[1], g = cotangents[0];
  return {conv_backward_input(b, dy, g, a, b.shape(x)), conv(b, x, g, a)};
}

// [B, N, C, ...] as [N, B * C, ...]: the batch becomes groups.
Value batch_to_channels(Builder& b, Value x) { return join_axes(b, move_axis(b, x, 0, 1), 1, 2); }

// [B, N, G * C, ...] as [N, G * B * C, ...]: the batch becomes channels of each group.
Value batch_into_groups(Builder& b, Value x, const Dim& groups) {
  const Dim per_group = divide(b.shape(x)[2], groups);
  x = move_axis(b, split_axis(b, x, 2, {groups, per_group}), 0, 2);  // [N, G, B, C, ...]
  return join_axes(b, x, 1, 3);
}

std::vector<Value> batch_input(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                               const Dim& size) {
  if (size.is(0)) return empty_batch(b, call, batched);
  const auto& attrs = call.as<ConvBackwardAttrs>();
  ConvAttrs a = forward_attrs(attrs);
  Shape shape = attrs.shape;
  const Dim n = shape[0], channels = shape[1];
  const Value dy = call.operands[0], w = call.operands[1];
  if (!batched[1]) {
    shape[0] = size * n;
    const Value dx = conv_backward_input(b, join_axes(b, dy, 0, 2), w, a, shape);
    return {split_axis(b, dx, 0, {size, n})};
  }
  shape[1] = size * channels;
  if (!batched[0]) {
    // More input channels in each group.
    const Value wide = join_axes(b, move_axis(b, w, 0, 1), 1, 2);  // [Co, B * Cig, ...]
    Value dx = conv_backward_input(b, dy, wide, a, shape);
    dx = split_axis(b, dx, 1, {a.groups, size, divide(channels, a.groups)});
    return {join_axes(b, move_axis(b, dx, 2, 0), 2, 2)};
  }
  a.groups = a.groups * size;
  const Value dx =
      conv_backward_input(b, batch_to_channels(b, dy), join_axes(b, w, 0, 2), a, shape);
  return {move_axis(b, split_axis(b, dx, 1, {size, channels}), 1, 0)};
}

std::vector<Value> batch_weight(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                                const Dim& size) {
  if (size.is(0)) return empty_batch(b, call, batched);
  const auto& attrs = call.as<ConvBackwardAttrs>();
  ConvAttrs a = forward_attrs(attrs);
  Shape shape = attrs.shape;
  const Dim outputs = shape[0], inputs = shape[1];
  const Value x = call.operands[0], dy = call.operands[1];
  if (batched[0] && batched[1]) {
    a.groups = a.groups * size;
    shape[0] = size * outputs;
    const Value dw =
        conv_backward_weight(b, batch_to_channels(b, x), batch_to_channels(b, dy), a, shape);
    return {split_axis(b, dw, 0, {size, outputs})};
  }
  if (batched[0]) {
    shape[1] = size * inputs;
    const Value dw = conv_backward_weight(b, batch_into_groups(b, x, a.groups), dy, a, shape);
    return {move_axis(b, split_axis(b, dw, 1, {size, inputs}), 1, 0)};
  }
  shape[0] = size * outputs;
  Value dw = conv_backward_weight(b, x, batch_into_groups(b, dy, a.groups), a, shape);
  dw = split_axis(b, dw, 0, {a.groups, size, divide(outputs, a.groups)});
  return {join_axes(b, move_axis(b, dw, 1, 0), 1, 2)};
}

Cost cost_input(const CostContext& c) {
  return {conv_flops(c.operands[1].shape, c.operands[0].shape), io_bytes(c)};
}

Cost cost_weight(const CostContext& c) {
  return {conv_flops(c.results[0].shape, c.operands[1].shape), io_bytes(c)};
}

ConvBackwardAttrs backward_attrs(const ConvAttrs& a, Shape shape) {
  return {a.stride, a.padding, a.dilation, a.groups, std::move(shape)};
}

}  // namespace

RLX_DEFINE_OP(Conv2dBackwardInput) = {
    .name = "Conv2dBackwardInput",
    .fields = RLX_FIELDS(ConvBackwardAttrs, stride, padding, dilation, groups, shape),
    .doc = R"(The gradient of Conv in its input; 1 to 3 spatial axes.

dy [N, Co, o1, ...] and w [Co, Ci / groups, k1, ...] of one float type give dx of the attribute
`shape` [N, Ci, s1, ...]:
  dx[n, g * Ci / groups + c, s...] = sum of dy[n, co, o...] * w[co, c, j...] over the co of group g
                                     and all o, j with o * stride + j * dilation - before = s.
Cells that no window covers get 0. stride, padding, dilation and groups are those of the forward
call; several input sizes give the same output size, so `shape` says which is meant.
Errors: dy is not what Conv gives for `shape` and w; those of Conv.
Linear in dy and in w; the gradients are Conv and Conv2dBackwardWeight.
Compare: torch.nn.grad.conv2d_input.)",
    .infer = infer_input,
    .normalize = normalize,
    .decompose = {.expand = expand_input},
    .jvp = jvp_multilinear,
    .vjp = vjp_input,
    .batching = batch_input,
    .cost = cost_input,
};

RLX_DEFINE_OP(Conv2dBackwardWeight) = {
    .name = "Conv2dBackwardWeight",
    .fields = RLX_FIELDS(ConvBackwardAttrs, stride, padding, dilation, groups, shape),
    .doc = R"(The gradient of Conv in its weight; 1 to 3 spatial axes.

x [N, Ci, s1, ...] and dy [N, Co, o1, ...] of one float type give dw of the attribute `shape`
[Co, Ci / groups, k1, ...]:
  dw[co, c, j...] = sum over n, o... of dy[n, co, o...]
                    * x~[n, g * Ci / groups + c, o * stride + j * dilation - before],
g = co / (Co / groups), x~ = 0 outside of x. stride, padding, dilation and groups are those of the
forward call. f16 and bf16 are accumulated in f32. An empty batch gives zeros.
Errors: dy is not what Conv gives for x and `shape`; those of Conv.
Linear in x and in dy; the gradients are Conv2dBackwardInput and Conv.
Compare: torch.nn.grad.conv2d_weight.)",
    .infer = infer_weight,
    .normalize = normalize,
    .decompose = {.expand = expand_weight},
    .jvp = jvp_multilinear,
    .vjp = vjp_weight,
    .batching = batch_weight,
    .cost = cost_weight,
};

Value conv_backward_input(Builder& b, Value dy, Value w, const ConvAttrs& attrs, Shape shape) {
  return b.op(kConv2dBackwardInputOp, backward_attrs(attrs, std::move(shape)), {dy, w});
}

Value conv_backward_weight(Builder& b, Value x, Value dy, const ConvAttrs& attrs, Shape shape) {
  return b.op(kConv2dBackwardWeightOp, backward_attrs(attrs, std::move(shape)), {x, dy});
}

}  // namespace rlx
