#include "rlx/ops/conv.h"

#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Conv);

ConvAttrs forward_attrs(const ConvBackwardAttrs& a) {
  return {a.stride, a.padding, a.dilation, a.groups};
}

Window conv_window(const ConvAttrs& a, Dims kernel) {
  return {std::move(kernel), a.stride, a.padding, a.dilation};
}

Dims kernel_of(const Shape& weight) {
  Dims kernel;
  for (int64_t axis = 2; axis < weight.rank(); ++axis) {
    if (!weight[axis].is_static()) {
      user_error("kernel sizes must be static, the weight has the shape {}", weight.to_string());
    }
    kernel.push_back(weight[axis].value());
  }
  return kernel;
}

Shape conv_shape(const TensorType& x, const TensorType& w, const ConvAttrs& a) {
  const int64_t r = spatial_rank(x, "x");
  if (w.shape.rank() != r + 2) {
    user_error("the weight must have rank {} as x has, it is {}", r + 2, w.to_string());
  }
  const Window window = conv_window(a, kernel_of(w.shape));
  check_window(window, r);
  if (a.groups.is_static() && a.groups.value() < 1) {
    user_error("groups is {}, expected at least 1", a.groups.value());
  }
  const auto per_group = exact_div(x.shape[1], a.groups);
  if (!per_group) {
    user_error("{} channels of x can't be split into {} groups", x.shape[1].to_string(),
               a.groups.to_string());
  }
  if (w.shape[1] != *per_group) {
    user_error("the weight has {} input channels a group, expected {} (channels of x / groups)",
               w.shape[1].to_string(), per_group->to_string());
  }
  if (!exact_div(w.shape[0], a.groups)) {
    user_error("{} output channels can't be split into {} groups", w.shape[0].to_string(),
               a.groups.to_string());
  }
  return window_result(x.shape, w.shape[0], window);
}

double conv_flops(const Shape& w, const Shape& y) {
  const double taps = double(w.num_elements().value()) / std::max<double>(1, double(w[0].value()));
  return 2.0 * double(y.num_elements().value()) * taps;
}

Value conv_patches(Builder& b, Value x, const Window& w, const Dim& groups) {
  const int64_t r = w.rank();
  const Shape shape = b.shape(x);
  Value cells = windows(b, x, w, 0);  // [N, Ci, o1, k1, o2, k2, ...]
  std::vector<int64_t> perm = {0, 1};
  for (int64_t i = 0; i < r; ++i) perm.push_back(3 + 2 * i);
  for (int64_t i = 0; i < r; ++i) perm.push_back(2 + 2 * i);
  cells = transpose(b, cells, perm);
  Dim area = 1;
  for (int64_t i = 0; i < r; ++i) area = area * window_count(shape[2 + i], w, i);
  const Dim depth = divide(shape[1], groups) * Dim(w.area());
  return reshape(b, cells, Shape{shape[0], groups, depth, area});
}

std::vector<Value> empty_batch(Builder& b, const RuleCall& call, std::span<const uint8_t> batched) {
  std::vector<TensorType> types;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    types.push_back(b.type(call.operands[i]));
    if (batched[i]) types.back().shape.erase(0);
  }
  std::vector<Value> results;
  for (TensorType& t : infer_call(call.op, call.attrs, types).results) {
    t.shape.insert(0, 0);
    results.push_back(splat(b, t.dtype, t.shape, 0));
  }
  return results;
}

namespace {

Attrs normalize(const InferContext& c) {
  ConvAttrs a = c.as<ConvAttrs>();
  if (!c.operands.empty()) normalize_conv(a, c[0].shape.rank() - 2);
  return Attrs::of(c.attrs.table(), std::move(a));
}

std::vector<TensorType> infer(const InferContext& c) {
  expect_operands(c, 2);
  expect_dtype(c, 0, dtypes::kFloats, "x");
  expect_same_dtype(c, 0, 1);
  return {{c[0].dtype, conv_shape(c[0], c[1], c.as<ConvAttrs>())}};
}

std::vector<Value> expand_conv(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  const auto& a = attrs.as<ConvAttrs>();
  const Value x = operands[0], w = operands[1];
  const Shape result = conv_shape(b.type(x), b.type(w), a);
  const Window window = conv_window(a, kernel_of(b.shape(w)));
  const Value patches = conv_patches(b, x, window, a.groups);
  const Dim depth = b.shape(patches)[2];
  const Value rows = reshape(b, w, Shape{a.groups, divide(b.shape(w)[0], a.groups), depth});
  return {reshape(b, matmul(b, rows, patches), result)};
}

std::vector<Value> vjp(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  const auto& a = call.as<ConvAttrs>();
  const Value x = call.operands[0], w = call.operands[1], dy = cotangents[0];
  return {conv_backward_input(b, dy, w, a, b.shape(x)),
          conv_backward_weight(b, x, dy, a, b.shape(w))};
}

// A batched x joins N, a batched w joins the output channels of each group, both together make
// size * groups groups: the result is one Conv always.
std::vector<Value> batch(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                         const Dim& size) {
  if (size.is(0)) return empty_batch(b, call, batched);
  ConvAttrs a = call.as<ConvAttrs>();
  Value x = call.operands[0], w = call.operands[1];
  if (!batched[1]) {
    const Dim n = b.shape(x)[1];
    return {split_axis(b, conv(b, join_axes(b, x, 0, 2), w, a), 0, {size, n})};
  }
  const Dim outputs = b.shape(w)[1];
  if (!batched[0]) {
    const Dim per_group = divide(outputs, a.groups);
    w = move_axis(b, split_axis(b, w, 1, {a.groups, per_group}), 0, 1);  // [G, B, Cog, ...]
    const Value y = conv(b, x, join_axes(b, w, 0, 3), a);
    const Value split = move_axis(b, split_axis(b, y, 1, {a.groups, size, per_group}), 2, 0);
    return {join_axes(b, split, 2, 2)};
  }
  a.groups = a.groups * size;
  x = join_axes(b, move_axis(b, x, 0, 1), 1, 2);
  const Value y = conv(b, x, join_axes(b, w, 0, 2), a);
  return {move_axis(b, split_axis(b, y, 1, {size, outputs}), 1, 0)};
}

Cost cost(const CostContext& c) {
  return {conv_flops(c.operands[1].shape, c.results[0].shape), io_bytes(c)};
}

std::vector<TensorType> infer_3d(const InferContext& c) {
  expect_operands(c, 2);
  expect_rank(c, 0, 5, "x");
  return infer(c);
}

std::vector<Value> expand_3d(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  return {conv(b, operands[0], operands[1], attrs.as<ConvAttrs>())};
}

TailRule tail(const InferContext&, size_t operand, int64_t axis) {
  return operand == 0 && axis == 0 ? TailRule::kIgnored : TailRule::kRefused;
}

}  // namespace

RLX_DEFINE_OP(Conv) = {
    .name = "Conv",
    .fields = RLX_FIELDS(ConvAttrs, stride, padding, dilation, groups),
    .doc = R"(Cross-correlation (the kernel is not flipped) over 1 to 3 spatial axes.

x [N, Ci, s1, ...] and w [Co, Ci / groups, k1, ...] of one float type give y [N, Co, o1, ...] with
o = floor((s + before + after - dilation * (k - 1) - 1) / stride) + 1 on each spatial axis:
  y[n, co, o...] = sum over c, j... of w[co, c, j...]
                   * x~[n, g * Ci / groups + c, o * stride + j * dilation - before],
g = co / (Co / groups), x~ = 0 outside of x.
Padding counts in the product: 0 times an infinite weight is NaN.

stride, dilation: one value per spatial axis, default 1. padding: one value per axis for both sides,
or all values before the axes followed by all values after them; default 0. The kernel size is that
of w. f16 and bf16 are accumulated in f32. An empty sum (Ci = 0) is 0.
Errors: other ranks, channels that the groups don't divide, a window that does not fit, padding
above 2^20.
Derivatives: Conv2dBackwardInput and Conv2dBackwardWeight, for any number of spatial axes.
Compare: torch.nn.functional.conv1d/2d/3d, jax.lax.conv_general_dilated, ONNX Conv.)",
    .infer = infer,
    .normalize = normalize,
    .decompose = {.expand = expand_conv},
    .jvp = jvp_multilinear,
    .vjp = vjp,
    .batching = batch,
    .cost = cost,
    .tail = tail,
};

RLX_DEFINE_OP(Conv3d) = {
    .name = "Conv3d",
    .fields = RLX_FIELDS(ConvAttrs, stride, padding, dilation, groups),
    .doc = R"(Conv with three spatial axes: another name of it.

x [N, Ci, D, H, W], w [Co, Ci / groups, kD, kH, kW]; attributes, rules and errors are Conv's.)",
    .infer = infer_3d,
    .normalize = normalize,
    .decompose = {.expand = expand_3d},
};

Value conv(Builder& b, Value x, Value w, ConvAttrs attrs) {
  return b.op(kConvOp, std::move(attrs), {x, w});
}

}  // namespace rlx
