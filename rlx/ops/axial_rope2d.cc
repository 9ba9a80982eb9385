#include "rlx/ops/axial_rope2d.h"

#include <algorithm>
#include <cmath>

#include "rlx/base/checked.h"
#include "rlx/ops/binary.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rope.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(AxialRope2d);
RLX_USE_OP(Rope);
RLX_USE_OP(RopeBackward);

std::vector<double> axial_rope2d_angles(const AxialRope2dAttrs& a) {
  const int64_t places = std::max(a.end_x, a.end_y), columns = a.head_dim / 4;
  std::vector<double> angles;
  angles.reserve(size_t(checked_mul(places, columns)));
  for (int64_t p = 0; p < places; ++p) {
    for (int64_t c = 0; c < columns; ++c) {
      angles.push_back(double(p) * std::pow(a.theta, -4.0 * double(c) / double(a.head_dim)));
    }
  }
  return angles;
}

namespace {

Attrs normalize(const InferContext& c) {
  AxialRope2dAttrs a = c.as<AxialRope2dAttrs>();
  if (a.repeat_factor != 0) return c.attrs;
  a.repeat_factor = 1;
  return Attrs::of(c.attrs.table(), a);
}

void check_attrs(const AxialRope2dAttrs& a) {
  if (a.end_x < 1 || a.end_y < 1) {
    user_error("the grid is {} x {}, expected positive end_x and end_y", a.end_x, a.end_y);
  }
  if (a.head_dim < 1 || a.head_dim % 4 != 0) {
    user_error("head_dim is {}, expected a positive multiple of 4", a.head_dim);
  }
  if (a.num_heads < 1) user_error("num_heads is {}, expected a positive number", a.num_heads);
  if (!(a.theta > 0) || std::isinf(a.theta)) {
    user_error("theta is {}, expected a positive number", a.theta);
  }
  if (a.repeat_factor < 1) {
    user_error("repeat_factor is {}, expected a number that is not negative", a.repeat_factor);
  }
  if (a.num_k_exclude < 0) {
    user_error("num_k_exclude is {}, expected a number that is not negative", a.num_k_exclude);
  }
}

int64_t turning_tokens(const AxialRope2dAttrs& a) {
  return checked_mul(checked_mul(a.end_x, a.end_y), a.repeat_factor);
}

std::vector<TensorType> infer(const InferContext& c) {
  expect_operands(c, 1);
  expect_dtype(c, 0, dtypes::kFloats, "x");
  expect_min_rank(c, 0, 2, "x");
  const auto& a = c.as<AxialRope2dAttrs>();
  check_attrs(a);
  const Shape& x = c[0].shape;
  const int64_t width = checked_mul(a.num_heads, a.head_dim);
  if (!x[x.rank() - 1].is(width)) {
    user_error("the last axis of x {} is {}, not num_heads * head_dim = {}", x.to_string(),
               x[x.rank() - 1].to_string(), width);
  }
  const int64_t tokens = checked_add(turning_tokens(a), a.num_k_exclude);
  if (!x[x.rank() - 2].is(tokens)) {
    user_error("x {} has {} tokens, not end_x * end_y * repeat_factor + num_k_exclude = {}",
               x.to_string(), x[x.rank() - 2].to_string(), tokens);
  }
  return {c[0]};
}

// The column (or row) of the grid in which each turning token lies.
Value places(Builder& b, const AxialRope2dAttrs& a, bool along_x) {
  const DType type = DType::kI64;
  Value p = iota(b, type, {turning_tokens(a)}, 0);
  if (a.repeat_mode == AxialRepeat::kInterleave) {
    p = div(b, p, double(a.repeat_factor));
  } else {
    p = binary(b, BinaryKind::kMod, p, scalar(b, type, double(a.end_x * a.end_y)));
  }
  return along_x ? binary(b, BinaryKind::kMod, p, scalar(b, type, double(a.end_x)))
                 : div(b, p, double(a.end_x));
}

// `rope` is Rope, or RopeBackward for the negative angles.
Value turn(Builder& b, const AxialRope2dAttrs& a, Value x, const OpDef& rope) {
  const int64_t turning = turning_tokens(a), half = a.head_dim / 2;
  const std::vector<double> angles = axial_rope2d_angles(a);
  const auto table = [&](double (*f)(double)) {
    std::vector<double> values(angles);
    for (double& v : values) v = f(v);
    const Dims shape{int64_t(values.size()) / (half / 2), half / 2};
    const Value wide = constant(b, Array::from<double>(values, shape));
    return cast(b, wide, accumulation_dtype(b.dtype(x)));
  };
  const Value cos = table(std::cos), sin = table(std::sin);
  const Value grid = narrow(b, x, -2, 0, turning);
  Shape shape = b.shape(grid);
  shape[shape.rank() - 1] = a.num_heads;
  shape.push_back(a.head_dim);
  const Value heads = reshape(b, grid, std::move(shape));
  std::vector<Value> parts;
  for (const bool along_x : {true, false}) {
    const Value part = narrow(b, heads, -1, along_x ? 0 : half, half);
    parts.push_back(b.op(rope, RopeAttrs{half, half, RopeStyle::kGptJ, RopeLayout::kBSHD},
                         {part, cos, sin, places(b, a, along_x)}));
  }
  const Value turned = reshape(b, concat(b, parts, -1), b.shape(grid));
  if (a.num_k_exclude == 0) return turned;
  const Value rest = narrow(b, x, -2, turning, a.num_k_exclude);
  return concat(b, std::vector{turned, rest}, -2);
}

std::vector<Value> expand(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  return {turn(b, attrs.as<AxialRope2dAttrs>(), operands[0], kRopeOp)};
}

std::vector<Value> vjp(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  return {turn(b, call.as<AxialRope2dAttrs>(), cotangents[0], kRopeBackwardOp)};
}

Cost cost(const CostContext& c) { return {3 * element_count(c.operands[0]), io_bytes(c)}; }

TailRule tail(const InferContext& c, size_t, int64_t axis) {
  return axis + 2 < c[0].shape.rank() ? TailRule::kIgnored : TailRule::kRefused;
}

}  // namespace

RLX_DEFINE_OP(AxialRope2d) = {
    .name = "AxialRope2d",
    .fields = RLX_FIELDS(AxialRope2dAttrs, end_x, end_y, head_dim, num_heads, theta, repeat_factor,
                         repeat_mode, num_k_exclude),
    .doc =
        R"(Rotary embedding of the places in a grid: turns the first half of every head by the token's
column, the second half by its row.

Operand: x [..., S, H * D] of a float type; the result has its type.
Attributes: end_x, end_y: the grid's columns and rows. head_dim: D, a multiple of 4. num_heads: H.
theta: base of the frequencies. repeat_factor: r, tokens of each place (0 is read as 1), in the order
that repeat_mode says. num_k_exclude: tokens at the end that are copied (the memory of SAM 2). So
S = end_x * end_y * r + num_k_exclude.
Token t lies at p = t / r (Interleave) or p = t mod (end_x * end_y) (Tile), in column p mod end_x and
row p / end_x. With f[c] = theta^(-4c / D) and c < D / 4, in every head
  components 2c and 2c + 1 turn by the angle column * f[c],
  components D / 2 + 2c and D / 2 + 2c + 1 by row * f[c],
where a, b become a * cos - b * sin, b * cos + a * sin. Angles, cos and sin are computed in f64.
16-bit x is computed in f32 and rounded once. No fused multiply-add.
Errors: sizes that do not fit, S and H * D known only at run time; theta not positive.
Derivative: the rotation by the negative angles.
Compare: compute_axial_cis and apply_rotary_enc of SAM 2, which repeats by Tile.)",
    .infer = infer,
    .normalize = normalize,
    .decompose = {.expand = expand},
    .jvp = jvp_linear,
    .vjp = vjp,
    .batching = batch_leading,
    .cost = cost,
    .tail = tail,
};

Value axial_rope2d(Builder& b, Value x, AxialRope2dAttrs attrs) {
  return b.op(kAxialRope2dOp, attrs, {x});
}

}  // namespace rlx
