#include "rlx/ops/rope.h"

#include <algorithm>
#include <array>

#include "rlx/base/error.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/gather.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Gather);
RLX_USE_OP(GatherBackward);
RLX_USE_OP(Rope);
RLX_USE_OP(RopeBackward);

RopeSizes rope_sizes(const RopeAttrs& a, std::span<const TensorType> operands) {
  const Shape &x = operands[0].shape, &table = operands[1].shape;
  const int64_t r = a.n_rot / 2, rank = x.rank();
  RopeSizes s;
  s.positions = operands.size() > 3;
  if (a.layout == RopeLayout::kPacked) {
    s.lead = rank - 2;
    s.tokens = x[rank - 2];
    s.heads = exact_div(x[rank - 1], Dim(a.head_dim)).value_or(Dim(0));
  } else {
    const bool heads_first = a.layout == RopeLayout::kBHSD;
    s.lead = rank - 3;
    s.tokens = x[heads_first ? rank - 2 : rank - 3];
    s.heads = x[heads_first ? rank - 3 : rank - 2];
  }
  s.width = table.rank() == 2 ? table[1] : Dim(r);
  s.rows = table.rank() == 2 ? table[0] : floor_div(table[0], r);
  return s;
}

namespace {

// --- Inference

Attrs normalize(const InferContext& c) {
  if (c.operands.empty()) return c.attrs;
  RopeAttrs a = c.as<RopeAttrs>();
  const Shape& x = c[0].shape;
  if (a.head_dim == 0 && a.layout != RopeLayout::kPacked && x.rank() > 0 &&
      x[x.rank() - 1].is_static()) {
    a.head_dim = x[x.rank() - 1].value();
  }
  if (a.n_rot == 0) a.n_rot = a.head_dim;
  return Attrs::of(c.attrs.table(), a);
}

void check_x(const InferContext& c, const RopeAttrs& a) {
  const Shape& x = c[0].shape;
  const bool packed = a.layout == RopeLayout::kPacked;
  expect_min_rank(c, 0, packed ? 2 : 3, "x");
  if (a.head_dim <= 0) user_error("head_dim is {}, expected a positive size", a.head_dim);
  if (a.n_rot <= 0 || a.n_rot % 2 != 0 || a.n_rot > a.head_dim) {
    user_error("n_rot is {}, expected an even number from 2 to head_dim = {}", a.n_rot, a.head_dim);
  }
  const Dim& last = x[x.rank() - 1];
  if (packed ? !exact_div(last, Dim(a.head_dim)) : !last.is(a.head_dim)) {
    user_error("the last axis of x {} is {}{} head_dim = {}", x.to_string(), last.to_string(),
               packed ? ", no multiple of" : ", not", a.head_dim);
  }
}

void check_tables(const InferContext& c, const RopeAttrs& a) {
  const DType x = c[0].dtype, table = c[1].dtype;
  const bool wide = size_of(x) == 2 && table == DType::kF32;
  if (table != x && !wide) {
    user_error("cos is {} beside x of {}: expected the same type{}", to_string(table), to_string(x),
               size_of(x) == 2 ? ", or f32" : "");
  }
  expect_same_type(c, 1, 2);
  const Shape& t = c[1].shape;
  if (t.rank() != 1 && t.rank() != 2) {
    user_error("cos has the shape {}, expected [positions, columns], or all in one axis",
               t.to_string());
  }
  const int64_t r = a.n_rot / 2;
  const Dim& last = t[t.rank() - 1];
  if (!last.is_static()) return;
  if (t.rank() == 1 ? last.value() % r != 0 : last.value() < r) {
    user_error("the last axis of cos {} is {} n_rot / 2 = {}", t.to_string(),
               t.rank() == 1 ? "no multiple of" : "less than", r);
  }
}

void check_positions(const InferContext& c, const RopeSizes& s) {
  if (!s.positions) {
    if (s.rows.is_static() && s.tokens.is_static() && s.rows.value() < s.tokens.value()) {
      user_error("the tables have {} rows for {} tokens", s.rows.value(), s.tokens.value());
    }
    return;
  }
  expect_dtype(c, 3, dtypes::kIndices, "position_ids");
  const Shape& p = c[3].shape;
  if (p.rank() == 0) return;
  Shape expected = c[0].shape.slice(0, s.lead);
  expected.push_back(s.tokens);
  const int64_t extra = expected.rank() - p.rank();
  if (extra >= 0 && expected.slice(extra, expected.rank()) == p) return;
  user_error("position_ids has the shape {}, expected [], [{}] or the last axes of {}",
             p.to_string(), s.tokens.to_string(), expected.to_string());
}

std::vector<TensorType> infer(const InferContext& c) {
  expect_operands(c, 3, 4);
  expect_dtype(c, 0, dtypes::kFloats, "x");
  const auto& a = c.as<RopeAttrs>();
  check_x(c, a);
  check_tables(c, a);
  check_positions(c, rope_sizes(a, c.operands));
  return {c[0]};
}

// --- The rotation by other ops

// A call's description for the functions below; `sign` is -1 for RopeBackward.
struct Turn {
  RopeAttrs a;
  RopeSizes s;
  double sign = 1;
  int64_t half() const { return a.n_rot / 2; }
  bool pairs() const { return a.style == RopeStyle::kGptJ; }
};

Turn turn_of(Builder& b, const OpDef& op, const Attrs& attrs, std::span<const Value> operands) {
  Turn t{attrs.as<RopeAttrs>(), {}, &op == &kRopeOp ? 1.0 : -1.0};
  std::vector<TensorType> types;
  for (Value v : operands) types.push_back(b.type(v));
  t.s = rope_sizes(t.a, types);
  return t;
}

// x with an axis for the heads.
Value with_heads(Builder& b, const Turn& t, Value x) {
  if (t.a.layout != RopeLayout::kPacked) return x;
  Shape shape = b.shape(x);
  shape[shape.rank() - 1] = t.s.heads;
  shape.push_back(t.a.head_dim);
  return reshape(b, x, std::move(shape));
}

// The two components of every pair, [..., n_rot / 2] each; x has an axis for the heads.
std::array<Value, 2> components(Builder& b, const Turn& t, Value x) {
  const int64_t r = t.half();
  if (!t.pairs()) return {narrow(b, x, -1, 0, r), narrow(b, x, -1, r, r)};
  Shape shape = b.shape(x);
  shape[shape.rank() - 1] = r;
  shape.push_back(2);
  const Value pairs = reshape(b, narrow(b, x, -1, 0, t.a.n_rot), std::move(shape));
  return {squeeze(b, narrow(b, pairs, -1, 0, 1), -1), squeeze(b, narrow(b, pairs, -1, 1, 1), -1)};
}

// The reverse; `tail` is invalid where n_rot == head_dim.
Value join(Builder& b, const Turn& t, std::array<Value, 2> y, Value tail, const Shape& shape) {
  std::vector<Value> parts(y.begin(), y.end());
  if (t.pairs()) {
    for (Value& v : parts) v = unsqueeze(b, v, -1);
    Shape pairs = b.shape(y[0]);
    pairs[pairs.rank() - 1] = t.a.n_rot;
    parts = {reshape(b, concat(b, parts, -1), std::move(pairs))};
  }
  if (tail.valid()) parts.push_back(tail);
  return reshape(b, concat(b, parts, -1), shape);
}

Value tail_of(Builder& b, const Turn& t, Value x) {
  if (t.a.n_rot == t.a.head_dim) return {};
  return narrow(b, x, -1, t.a.n_rot, t.a.head_dim - t.a.n_rot);
}

// cos * x0 - sin * x1 and cos * x1 + sin * x0, for the angle or its negative. A factor may be
// invalid (zero), not both.
std::array<Value, 2> turned(Builder& b, const Turn& t, std::array<Value, 2> x, Value cos,
                            Value sin) {
  if (!sin.valid()) return {mul(b, x[0], cos), mul(b, x[1], cos)};
  const Value first = mul(b, x[1], sin), second = mul(b, x[0], sin);
  if (!cos.valid()) {
    return t.sign > 0 ? std::array{neg(b, first), second} : std::array{first, neg(b, second)};
  }
  const Value c0 = mul(b, x[0], cos), c1 = mul(b, x[1], cos);
  if (t.sign > 0) return {sub(b, c0, first), add(b, c1, second)};
  return {add(b, c0, first), sub(b, c1, second)};
}

// position + 0, 1, ... for a scalar position, [S].
Value positions_from(Builder& b, const Turn& t, Value start) {
  const DType type = b.dtype(start) == DType::kU64 ? DType::kU64 : DType::kI64;
  start = cast(b, start, type);
  const Value steps = iota(b, type, {t.s.tokens}, 0);
  if (b.shape(start).rank() == 0) return add(b, start, steps);
  return add(b, unsqueeze(b, start, 1), steps);  // [batch, S]
}

Value gather_rows(Builder& b, Value table, Value indices, int64_t batch) {
  return b.op(kGatherOp, GatherAttrs{batch, 0}, {table, indices});
}

// What the tokens read of a table: [S, n_rot / 2], or [..., S, n_rot / 2] by position_ids.
Value rows_of(Builder& b, const Turn& t, Value table, Value positions) {
  table = narrow(b, reshape(b, table, {t.s.rows, t.s.width}), -1, 0, t.half());
  if (!positions.valid()) return narrow(b, table, 0, 0, t.s.tokens);
  if (b.shape(positions).rank() == 0) positions = positions_from(b, t, positions);
  return gather_rows(b, table, positions, 0);
}

// Rows of a table with the axis of the heads.
Value align_rows(Builder& b, const Turn& t, Value rows) {
  const bool heads_first = t.a.layout == RopeLayout::kBHSD;
  return unsqueeze(b, rows, b.shape(rows).rank() - (heads_first ? 2 : 1));
}

Value positions_of(std::span<const Value> operands) {
  return operands.size() > 3 ? operands[3] : Value{};
}

// y for table rows that are aligned with x.
Value rotate(Builder& b, const Turn& t, Value x, Value cos, Value sin) {
  const Value heads = with_heads(b, t, x);
  return join(b, t, turned(b, t, components(b, t, heads), cos, sin), tail_of(b, t, heads),
              b.shape(x));
}

template <const OpDef& kOp>
std::vector<Value> expand(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  const Turn t = turn_of(b, kOp, attrs, operands);
  const Value positions = positions_of(operands);
  // Wider tables than x only come with 16-bit x, which the caller widens as well.
  const Value cos = align_rows(b, t, rows_of(b, t, operands[1], positions));
  const Value sin = align_rows(b, t, rows_of(b, t, operands[2], positions));
  return {rotate(b, t, operands[0], cos, sin)};
}

// --- Derivatives

Value call_with(Builder& b, const OpDef& op, const Attrs& attrs, Value x,
                std::span<const Value> operands) {
  std::vector<Value> all(operands.begin(), operands.end());
  all[0] = x;
  return b.call(op, attrs, all)[0];
}

DType compute_type(Builder& b, Value x) { return accumulation_dtype(b.dtype(x)); }

// The rows of a table's tangent, in the type of the computation; invalid stays so.
Value tangent_rows(Builder& b, const Turn& t, Value tangent, Value positions, DType type) {
  if (!tangent.valid()) return {};
  return cast(b, align_rows(b, t, rows_of(b, t, tangent, positions)), type);
}

std::vector<Value> jvp(Builder& b, const RuleCall& call, std::span<const Value> tangents) {
  const Turn t = turn_of(b, call.op, call.attrs, call.operands);
  Value sum;
  if (tangents[0].valid()) sum = call_with(b, call.op, call.attrs, tangents[0], call.operands);
  if (!tangents[1].valid() && !tangents[2].valid()) return {sum};
  const Value x = call.operands[0], positions = positions_of(call.operands);
  const DType type = compute_type(b, x);
  const Value heads = with_heads(b, t, cast(b, x, type));
  const auto y =
      turned(b, t, components(b, t, heads), tangent_rows(b, t, tangents[1], positions, type),
             tangent_rows(b, t, tangents[2], positions, type));
  Value tail = tail_of(b, t, heads);
  if (tail.valid()) tail = zeros_like(b, tail);
  return {add_valid(b, sum, cast(b, join(b, t, y, tail, b.shape(x)), b.dtype(x)))};
}

// The gradient of a table from that of its aligned rows, spread over all heads.
Value table_gradient(Builder& b, const Turn& t, Value g, Value table, Value positions) {
  const int64_t r = t.half();
  const bool heads_first = t.a.layout == RopeLayout::kBHSD;
  if (positions.valid() && b.shape(positions).rank() == 0) {
    positions = positions_from(b, t, positions);
  }
  Shape rows{t.s.tokens, r};
  if (positions.valid()) {
    rows = b.shape(positions);
    rows.push_back(r);
  }
  g = sum(b, g, {b.shape(g).rank() - (heads_first ? 3 : 2)});
  g = unbroadcast(b, g, rows);
  const Dim& total = t.s.rows;
  if (positions.valid()) {
    g = b.op(kGatherBackwardOp, GatherBackwardAttrs{0, 0, {total, r}}, {g, positions});
  } else {
    g = pad_axis(b, g, 0, 0, total - t.s.tokens, 0);
  }
  g = pad_axis(b, g, 1, 0, t.s.width - Dim(r), 0);
  return cast(b, reshape(b, g, b.shape(table)), b.dtype(table));
}

std::vector<Value> vjp(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  const Turn t = turn_of(b, call.op, call.attrs, call.operands);
  const OpDef& reverse = &call.op == &kRopeOp ? kRopeBackwardOp : kRopeOp;
  const Value x = call.operands[0], positions = positions_of(call.operands);
  std::vector<Value> gradients(call.operands.size());
  gradients[0] = call_with(b, reverse, call.attrs, cotangents[0], call.operands);
  const DType type = compute_type(b, x);
  const auto in = components(b, t, with_heads(b, t, cast(b, x, type)));
  const auto g = components(b, t, with_heads(b, t, cast(b, cotangents[0], type)));
  const Value cos = add(b, mul(b, in[0], g[0]), mul(b, in[1], g[1]));
  Value sin = sub(b, mul(b, in[0], g[1]), mul(b, in[1], g[0]));
  if (t.sign < 0) sin = neg(b, sin);
  gradients[1] = table_gradient(b, t, cos, call.operands[1], positions);
  gradients[2] = table_gradient(b, t, sin, call.operands[2], positions);
  return gradients;
}

// --- Batching

// A table with a batch axis: what the tokens read, aligned with x, which has that axis too.
Value batched_rows(Builder& b, const Turn& t, Value table, Value positions, bool by_lane) {
  const Dim size = b.shape(table)[0];
  table = narrow(b, reshape(b, table, {size, t.s.rows, t.s.width}), -1, 0, t.half());
  if (!positions.valid()) {
    table = narrow(b, table, 1, 0, t.s.tokens);
  } else {
    table = by_lane ? b.op(kGatherOp, GatherAttrs{1, 1}, {table, positions})
                    : gather_rows(b, table, positions, 1);
  }
  while (b.shape(table).rank() < t.s.lead + 3) table = unsqueeze(b, table, 1);
  return align_rows(b, t, table);
}

// Position ids of each lane, for all leading axes of x.
Value lane_positions(Builder& b, const Turn& t, Value positions, const Shape& x) {
  if (b.shape(positions).rank() == 1) positions = positions_from(b, t, positions);
  while (b.shape(positions).rank() < t.s.lead + 2) positions = unsqueeze(b, positions, 1);
  Shape shape = x.slice(0, t.s.lead + 1);
  shape.push_back(t.s.tokens);
  return expand(b, positions, std::move(shape));
}

std::vector<Value> batch(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                         const Dim& size) {
  std::vector<Value> operands(call.operands.begin(), call.operands.end());
  operands[0] = with_batch(b, operands[0], batched[0] != 0, size);
  // The sizes of one lane.
  std::vector<TensorType> types;
  for (size_t i = 0; i < operands.size(); ++i) {
    types.push_back(b.type(operands[i]));
    if (i == 0 || batched[i]) types[i].shape.erase(0);
  }
  Turn t{call.as<RopeAttrs>(), {}, &call.op == &kRopeOp ? 1.0 : -1.0};
  t.s = rope_sizes(t.a, types);
  const bool by_lane = operands.size() > 3 && batched[3];
  if (by_lane) operands[3] = lane_positions(b, t, operands[3], b.shape(operands[0]));
  if (!batched[1] && !batched[2]) return b.call(call.op, call.attrs, operands);
  Value positions = positions_of(operands);
  if (positions.valid() && b.shape(positions).rank() == 0) {
    positions = positions_from(b, t, positions);
  }
  const DType type = compute_type(b, operands[0]);
  const auto rows = [&](size_t i) {
    const Value table = cast(b, with_batch(b, operands[i], batched[i] != 0, size), type);
    return batched_rows(b, t, table, positions, by_lane);
  };
  const Value cos = rows(1), sin = rows(2);
  const Value y = rotate(b, t, cast(b, operands[0], type), cos, sin);
  return {cast(b, y, b.dtype(operands[0]))};
}

Cost cost(const CostContext& c) {
  const auto& a = c.attrs.as<RopeAttrs>();
  const double turned = double(a.n_rot) / double(a.head_dim);
  // Tables are made for all positions that there may be: few of their rows are read.
  const RopeSizes s = rope_sizes(a, c.operands);
  const bool ids = s.positions && c.operands[3].shape.rank() > 0;
  const double read = ids ? element_count(c.operands[3]) : double(s.tokens.value());
  const double unread = std::max(0.0, double(s.rows.value()) - read) * double(s.width.value());
  const double bytes = 2 * unread * double(size_of(c.operands[1].dtype));
  return {3 * turned * element_count(c.operands[0]), io_bytes(c) - bytes};
}

// Ids beyond the extent must be in range; with ids the rows of the tables are checked against
// theirs.
TailRule tail(const InferContext& c, size_t operand, int64_t axis) {
  const bool ids = c.operands.size() > 3;
  if (operand == 3) return TailRule::kZero;
  if (operand > 0) {
    return axis == 0 && c[operand].shape.rank() == 2 && !ids ? TailRule::kIgnored
                                                             : TailRule::kRefused;
  }
  return axis + 1 < c[0].shape.rank() ? TailRule::kIgnored : TailRule::kRefused;
}

}  // namespace

RLX_DEFINE_OP(Rope) = {
    .name = "Rope",
    .fields = RLX_FIELDS(RopeAttrs, head_dim, n_rot, style, layout),
    .doc =
        R"(Rotary position embedding: turns pairs of the first n_rot components of every head by angles
that depend on the token's position.

Operands: x of a float type; cos and sin, tables of one shape, [P, W] with W >= n_rot / 2 (further
columns are not read) or flat [P * n_rot / 2], of the type of x, or f32 where x has 16 bits;
position_ids (optional, any integer type). Result: the type of x.
Attributes: layout: BSHD is [..., S, H, D], BHSD [..., H, S, D], Packed [..., S, H * D]. head_dim: D, the last axis if left out (not Packed).
n_rot: even, at most D, and D if left out. style: how components pair up.
With row p of the tables for token s, r = n_rot / 2 and i < r:
  NeoX: y[i] = x[i] * cos[p, i] - x[i + r] * sin[p, i],  y[i + r] = x[i + r] * cos[p, i] + x[i] * sin[p, i]
  GptJ: the same for the components 2i and 2i + 1;
components from n_rot on are copied. Without position_ids p = s; a scalar gives p = position_ids + s;
otherwise it has the shape [S], or [..., S] with the last of x's leading axes, and gives p itself. As in
Gather a negative p means p + P, and anything else outside 0 ... P - 1 is an error at run time.
16-bit x is computed in f32 and rounded once. No fused multiply-add.
Errors: sizes that do not fit; fewer rows than tokens without position_ids; other dtypes.
Derivative: RopeBackward for x; the tables get theirs too, position_ids none.
Compare: Hugging Face's apply_rotary_pos_emb (its tables hold each half twice), ONNX RotaryEmbedding.)",
    .infer = infer,
    .normalize = normalize,
    .decompose = {.expand = expand<kRopeOp>},
    .jvp = jvp,
    .vjp = vjp,
    .batching = batch,
    .cost = cost,
    .tail = tail,
};

RLX_DEFINE_OP(RopeBackward) = {
    .name = "RopeBackward",
    .fields = RLX_FIELDS(RopeAttrs, head_dim, n_rot, style, layout),
    .doc =
        R"(The gradient of Rope for x: the rotation of dy by the negative angles.

Operands dy, cos, sin and optionally position_ids, attributes and errors as Rope; the result has the
type of dy and is that of Rope with -sin for sin.
Derivative: Rope for dy; the tables get theirs too.)",
    .infer = infer,
    .normalize = normalize,
    .decompose = {.expand = expand<kRopeBackwardOp>},
    .jvp = jvp,
    .vjp = vjp,
    .batching = batch,
    .cost = cost,
    .tail = tail,
};

Value rope(Builder& b, Value x, Value cos, Value sin, RopeAttrs attrs, Value position_ids) {
  return position_ids.valid() ? b.op(kRopeOp, attrs, {x, cos, sin, position_ids})
                              : b.op(kRopeOp, attrs, {x, cos, sin});
}

}  // namespace rlx
