#include "rlx/ops/lstm.h"

#include "rlx/base/checked.h"
#include "rlx/ops/batch.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/derive.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/loops.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Lstm);

namespace {

using Sizes = LstmSizes<Dim>;

constexpr size_t kX = 0, kInputWeights = 1, kHiddenWeights = 2, kBias = 3;

void check_attrs(const LstmAttrs& a) {
  if (a.hidden_size < 1) user_error("hidden_size is {}, expected at least 1", a.hidden_size);
  if (a.num_layers < 1) user_error("num_layers is {}, expected at least 1", a.num_layers);
  if (a.bidirectional && a.reverse) {
    user_error("bidirectional has both directions; reverse is for one direction only");
  }
  // The largest number of weights that sizes are computed from.
  const int64_t blocks = checked_mul(a.num_layers, 2);
  checked_mul(checked_mul(blocks, 8), checked_mul(a.hidden_size, a.hidden_size));
}

// Weights are all blocks one after another; those of equal blocks may have an axis for the blocks,
// and those of a single block none.
void check_packed(const InferContext& c, size_t i, const Dim& total, const Shape& block,
                  bool equal_blocks, int64_t blocks, std::string_view name) {
  expect_same_dtype(c, kX, i);
  const Shape& shape = c[i].shape;
  if (shape == Shape{total}) return;
  Shape all = block;
  all.insert(0, blocks);
  if (equal_blocks && shape == all) return;
  if (blocks == 1 && shape == block) return;
  const std::string single = blocks == 1 && block.rank() > 1 ? ", " + block.to_string() : "";
  const std::string stacked = equal_blocks ? " or " + all.to_string() : "";
  user_error("{} is {}, expected {}{}{}", name, shape.to_string(), Shape{total}.to_string(), single,
             stacked);
}

void check_weights(const InferContext& c, const Sizes& n) {
  const int64_t blocks = n.blocks(), gates = n.gates(), hidden = n.hidden;
  const bool equal = n.layers == 1 || n.input == Dim(n.output());
  check_packed(c, kInputWeights, n.input_offset(blocks), {Dim(gates), n.input}, equal, blocks,
               "w_ih");
  check_packed(c, kHiddenWeights, Dim(blocks * gates * hidden), {Dim(gates), Dim(hidden)}, true,
               blocks, "w_hh");
  check_packed(c, kBias, Dim(blocks * gates), {Dim(gates)}, true, blocks, "bias");
}

std::vector<TensorType> infer(const InferContext& c) {
  const auto& a = c.as<LstmAttrs>();
  check_attrs(a);
  const LstmOperands at(a);
  expect_operands(c, size_t(at.count));
  expect_dtype(c, kX, dtypes::kFloats, "x");
  expect_rank(c, kX, 3, "x");
  const Sizes n(a, c[kX].shape);
  check_weights(c, n);
  const DType t = c[kX].dtype;
  const TensorType state{t, {Dim(n.blocks()), n.batch, Dim(n.hidden)}};
  const auto expect = [&](int i, const TensorType& type, std::string_view name) {
    if (i < 0 || c[size_t(i)] == type) return;
    user_error("{} must be {}, it is {}", name, type.to_string(), c[size_t(i)].to_string());
  };
  expect(at.h0, state, "h0");
  expect(at.c0, state, "c0");
  expect(at.lengths, {DType::kI64, {n.batch}}, "lengths");
  return {{t, {n.batch, n.steps, Dim(n.output())}}, state, state};
}

// A part of a packed operand.
Value block_of(Builder& b, Value packed, const Dim& offset, const Dim& count, Shape shape) {
  return reshape(b, narrow(b, packed, 0, offset, count), std::move(shape));
}

Value flat(Builder& b, Value x, const Dim& count) { return reshape(b, x, {count}); }

class Expansion {
 public:
  Expansion(Builder& b, const LstmAttrs& a, std::span<const Value> operands)
      : b_(b), a_(a), at_(a), n_(a, b.shape(operands[kX])), operands_(operands) {
    const Dim blocks = n_.blocks(), gates = n_.gates();
    w_ih_ = flat(b, operands[kInputWeights], n_.input_offset(n_.blocks()));
    w_hh_ = flat(b, operands[kHiddenWeights], blocks * gates * n_.hidden);
    bias_ = flat(b, operands[kBias], blocks * gates);
    if (at_.lengths >= 0) lengths_ = operands[size_t(at_.lengths)];
  }

  std::vector<Value> run() {
    Value sequence = live_part(operands_[kX]);
    std::vector<Value> h, c;
    for (int64_t layer = 0; layer < n_.layers; ++layer) {
      std::vector<Value> ys;
      for (int64_t d = 0; d < n_.directions; ++d) {
        const std::vector<Value> results = run_block(sequence, layer, d);
        h.push_back(unsqueeze(b_, results[0], 0));
        c.push_back(unsqueeze(b_, results[1], 0));
        ys.push_back(transpose(b_, results[2], {1, 0, 2}));
      }
      sequence = joined(ys, 2);
    }
    return {sequence, joined(h, 0), joined(c, 0)};
  }

 private:
  Value joined(const std::vector<Value>& parts, int64_t axis) {
    return parts.size() == 1 ? parts[0] : concat(b_, parts, axis);
  }

  // Zeros past the end, so that NaN there stays out of the derivatives too.
  Value live_part(Value x) {
    if (!lengths_.valid()) return x;
    const Value step = iota(b_, DType::kI64, {n_.steps}, 0);
    const Value live = less(b_, step, unsqueeze(b_, lengths_, 1));
    return where(b_, unsqueeze(b_, live, 2), x, scalar(b_, b_.dtype(x), 0));
  }

  Value first_state(int operand, int64_t block) {
    const Shape shape{n_.batch, Dim(n_.hidden)};
    if (operand < 0) return splat(b_, b_.dtype(operands_[kX]), shape, 0);
    return squeeze(b_, narrow(b_, operands_[size_t(operand)], 0, block, 1), 0);
  }

  // h and c after the last step, and all h [S, B, H].
  std::vector<Value> run_block(Value sequence, int64_t layer, int64_t d) {
    const int64_t block = layer * n_.directions + d;
    const Dim gates = n_.gates(), hidden = n_.hidden, inputs = n_.layer_input(layer);
    const Value w = block_of(b_, w_ih_, n_.input_offset(block), gates * inputs, {gates, inputs});
    const Value r =
        block_of(b_, w_hh_, Dim(block) * gates * hidden, gates * hidden, {gates, hidden});
    const Value bias = narrow(b_, bias_, 0, Dim(block) * gates, gates);
    const Value z = add(b_, matmul(b_, sequence, swap_last_axes(b_, w)), bias);
    const Value recurrent = swap_last_axes(b_, r);
    ScanOptions options;
    options.reverse = a_.reverse || d == 1;
    return scan(
        b_, {first_state(at_.h0, block), first_state(at_.c0, block)}, {transpose(b_, z, {1, 0, 2})},
        n_.steps,
        [&](Body& step, Value index, std::span<const Value> carries, std::span<const Value> xs) {
          return cell(step, index, carries, xs[0], recurrent);
        },
        options);
  }

  ScanStep cell(Body& step, Value index, std::span<const Value> carries, Value z,
                Value recurrent) const {
    const Value all = add(step, z, matmul(step, carries[0], step.capture(recurrent)));
    const auto gate = [&](int64_t g) { return narrow(step, all, 1, g * n_.hidden, n_.hidden); };
    const Value i = sigmoid(step, gate(0)), f = sigmoid(step, gate(1));
    const Value g = tanh(step, gate(2)), o = sigmoid(step, gate(3));
    Value c = add(step, mul(step, f, carries[1]), mul(step, i, g));
    Value h = mul(step, o, tanh(step, c));
    Value y = h;
    if (lengths_.valid()) {
      const Value live = unsqueeze(step, less(step, index, step.capture(lengths_)), 1);
      y = where(step, live, h, scalar(step, step.dtype(h), 0));
      h = where(step, live, h, carries[0]);
      c = where(step, live, c, carries[1]);
    }
    return {{h, c}, {y}};
  }

  Builder& b_;
  const LstmAttrs& a_;
  LstmOperands at_;
  Sizes n_;
  std::span<const Value> operands_;
  Value w_ih_, w_hh_, bias_, lengths_{};
};

std::vector<Value> expand_lstm(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  return Expansion(b, attrs.as<LstmAttrs>(), operands).run();
}

// With weights of their own, examples share no product: the decomposition's rules.
std::vector<Value> batch_by_steps(Builder& b, const RuleCall& call,
                                  std::span<const uint8_t> batched, const Dim& size) {
  std::vector<TensorType> types;
  std::vector<Lane> lanes;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    types.push_back(b.type(call.operands[i]));
    if (batched[i]) types.back().shape.erase(0);
    lanes.push_back({call.operands[i], batched[i] != 0});
  }
  std::vector<Value> results;
  for (const Lane& l : batch_graph(b, expand_to_graph(call.op, call.attrs, types), size, lanes)) {
    results.push_back(with_batch(b, l.value, l.batched, size));
  }
  return results;
}

std::vector<Value> batch(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                         const Dim& size) {
  if (batched[kInputWeights] || batched[kHiddenWeights] || batched[kBias]) {
    return batch_by_steps(b, call, batched, size);
  }
  const LstmOperands at(call.as<LstmAttrs>());
  const Dim inner = b.shape(call.operands[kX])[batched[kX] ? 1 : 0];
  std::vector<Value> operands(call.operands.begin(), call.operands.end());
  const auto join = [&](size_t i, bool blocks_first) {
    Value x = with_batch(b, operands[i], batched[i] != 0, size);
    if (blocks_first) x = move_axis(b, x, 0, 1);
    operands[i] = fold_batch(b, x, blocks_first ? 1 : 0);
  };
  join(kX, false);
  for (const int i : {at.h0, at.c0}) {
    if (i >= 0) join(size_t(i), true);
  }
  if (at.lengths >= 0) join(size_t(at.lengths), false);
  std::vector<Value> results = b.call(call.op, call.attrs, operands);
  results[0] = unfold_batch(b, results[0], 0, size, inner);
  for (size_t i : {1, 2}) {
    results[i] = move_axis(b, unfold_batch(b, results[i], 1, size, inner), 1, 0);
  }
  return results;
}

Cost cost(const CostContext& c) {
  const LstmSizes<Dim> n(c.attrs.as<LstmAttrs>(), c.operands[kX].shape);
  const auto rows = double(n.batch.value()) * double(n.steps.value());
  double flops = 0;
  for (int64_t layer = 0; layer < n.layers; ++layer) {
    const double inputs = double(n.layer_input(layer).value()) + double(n.hidden);
    flops += rows * double(n.output()) * (8 * inputs + 30);
  }
  return {flops, io_bytes(c)};
}

// Sequences do not meet, and lengths end them; without lengths they must be whole. The kernel
// checks all lengths, so there must be no others: the decomposition checks none.
TailRule tail(const InferContext& c, size_t operand, int64_t axis) {
  const LstmOperands at(c.as<LstmAttrs>());
  if (operand == kX && axis == 0) return TailRule::kIgnored;
  if (operand == kX && axis == 1) return at.lengths >= 0 ? TailRule::kIgnored : TailRule::kRefused;
  const bool state = int(operand) == at.h0 || int(operand) == at.c0;
  return state && axis == 1 ? TailRule::kIgnored : TailRule::kRefused;
}

}  // namespace

RLX_DEFINE_OP(Lstm) = {
    .name = "Lstm",
    .fields = RLX_FIELDS(LstmAttrs, hidden_size, num_layers, bidirectional, reverse, carry,
                         has_lengths),
    .doc =
        R"(Long short-term memory over whole sequences: layers one over the other, in one or two directions.

Operands, all of one float type but the lengths, with H = hidden_size, L = num_layers, D = 2 if
bidirectional, else 1:
  x     [B, S, I]
  w_ih  the input weights, blocks [4H, K] of all layers and directions one after another, layer by
        layer and in a layer by direction; K is I in the first layer and D * H in the others
  w_hh  the recurrent weights, blocks [4H, H] in the same order
  bias  blocks [4H]: the sum of what other libraries keep as two biases
  h0, c0   with carry: the first state [L * D, B, H], else zeros; entry l * D + d is block (l, d)
  lengths  with has_lengths: i64 [B], the steps of each sequence, 0 to S
Weights are 1-D; with equal blocks they may also have the shape [L * D, ...block], a single block its
own shape. The rows of a block are the gates i, f, g, o (ONNX has i, o, f, c: reorder them). Step by step:
  i, f, g, o = the parts of x_t w_ih^T + bias + h w_hh^T
  c = sigmoid(f) c + sigmoid(i) tanh(g)
  h = sigmoid(o) tanh(c)
Results y [B, S, D * H], the h of each step at the place of its x, forward features first; and h, c
[L * D, B, H], the last state of each block. The second direction, or with reverse the only one, goes
from the last step to the first. A layer reads y of the layer below it.
Past its length a sequence has y = 0, and the state stays: a reverse direction begins at the last
live step. What stands in x there has no influence, NaN included. S = 0 passes the state through.
f16 and bf16 are computed in f32, states and lower layers included, and rounded once.
Errors: hidden_size or num_layers below 1, bidirectional with reverse, operands of other shapes; at run
time a length outside of [0, S]. The decomposition can't raise the latter: there a length counts as
the nearest allowed one.
Derivative: that of the decomposition, products and a Scan for each block; none for lengths.
Compare: torch.nn.LSTM with batch_first.
Source: Hochreiter and Schmidhuber, Long short-term memory; Gers et al. for the forget gate.)",
    .infer = infer,
    .decompose = {.expand = expand_lstm},
    .batching = batch,
    .cost = cost,
    .tail = tail,
};

LstmResults lstm(Builder& b, Value x, Value w_ih, Value w_hh, Value bias, LstmAttrs attrs,
                 const LstmExtras& extras) {
  if (extras.h0.valid() != extras.c0.valid()) {
    user_error("Lstm: h0 and c0 come together, only {} is given", extras.h0.valid() ? "h0" : "c0");
  }
  attrs.carry = extras.h0.valid();
  attrs.has_lengths = extras.lengths.valid();
  std::vector<Value> operands = {x, w_ih, w_hh, bias};
  for (const Value v : {extras.h0, extras.c0, extras.lengths}) {
    if (v.valid()) operands.push_back(v);
  }
  const auto results = b.call(kLstmOp, Attrs::of(kLstmOp.fields, attrs), operands);
  return {results[0], results[1], results[2]};
}

std::vector<Value> lstm(Builder& b, Value x, Value w_ih, Value w_hh, Value bias, LstmAttrs attrs) {
  const LstmResults r = lstm(b, x, w_ih, w_hh, bias, attrs, LstmExtras{});
  return {r.y, r.h, r.c};
}

}  // namespace rlx
