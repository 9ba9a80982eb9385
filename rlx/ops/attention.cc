#include "rlx/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "rlx/ops/batch.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(Attention);
RLX_USE_OP(AttentionBackwardAll);
RLX_USE_OP(AttentionBackward);

double attention_pairs(const AttentionAttrs& a, const AttentionSizes<int64_t>& n) {
  double pairs = double(n.queries) * double(n.keys);
  if (a.mask == AttentionMask::kCausal || a.mask == AttentionMask::kSlidingWindow) {
    // The last query sees all keys, each one before it one less.
    const auto shared = double(std::min(n.queries, n.keys));
    pairs = (double(n.keys) - shared) * shared + shared * (shared + 1) / 2;
  }
  if (a.mask == AttentionMask::kSlidingWindow) {
    pairs = std::min(pairs, double(n.queries) * (double(a.window) + 1));
  }
  return double(n.batch) * double(n.heads) * pairs;
}

namespace {

using Sizes = AttentionSizes<Dim>;

AttentionAttrs forward_attrs(const AttentionBackwardAttrs& a) {
  return {a.layout,   a.mask,     a.window,     a.scale,    a.softcap,
          a.has_mask, a.has_bias, a.has_kv_len, a.has_q_len};
}

void check_attrs(const AttentionAttrs& a) {
  if (a.mask == AttentionMask::kCustom && !a.has_mask) {
    user_error("mask = Custom needs a mask operand (has_mask)");
  }
  if (a.window < 0) user_error("window is {}, expected a number that is not negative", a.window);
  if (a.window != 0 && a.mask != AttentionMask::kSlidingWindow) {
    user_error("window is {}, but mask is {}; only SlidingWindow has a window", a.window,
               enum_name(a.mask));
  }
  if (a.scale && !std::isfinite(*a.scale)) {
    user_error("scale is {}, expected a finite number", *a.scale);
  }
  if (a.softcap && !(*a.softcap > 0 && std::isfinite(*a.softcap))) {
    user_error("softcap is {}, expected a finite number (0 and below: none)", *a.softcap);
  }
}

void check_equal(const Dim& x, const Dim& y, std::string_view what, const InferContext& c) {
  if (x == y) return;
  user_error("{} differ: {} and {} (q {}, k {}, v {})", what, x.to_string(), y.to_string(),
             c[0].shape.to_string(), c[1].shape.to_string(), c[2].shape.to_string());
}

// q, k and v.
Sizes check_inputs(const InferContext& c, AttentionLayout layout) {
  expect_dtype(c, 0, dtypes::kFloats, "q");
  constexpr std::string_view kNames[] = {"q", "k", "v"};
  for (size_t i = 0; i < 3; ++i) {
    expect_rank(c, i, 4, kNames[i]);
    expect_same_dtype(c, 0, i);
  }
  const Shape &q = c[0].shape, &k = c[1].shape, &v = c[2].shape;
  check_equal(q[0], k[0], "the batch sizes of q and k", c);
  check_equal(k[0], v[0], "the batch sizes of k and v", c);
  check_equal(q[3], k[3], "the widths of q and k", c);
  Sizes s = attention_sizes<Dim>(layout, q, k, v);
  check_equal(s.keys, v[sequence_axis(layout)], "the lengths of k and v", c);
  check_equal(s.kv_heads, v[heads_axis(layout)], "the heads of k and v", c);
  if (s.heads != s.kv_heads && (s.kv_heads.is(0) || !exact_div(s.heads, s.kv_heads))) {
    user_error("{} heads of q are no multiple of {} heads of k and v in layout {}",
               s.heads.to_string(), s.kv_heads.to_string(), enum_name(layout));
  }
  return s;
}

void check_bias(const InferContext& c, size_t i, const Sizes& s) {
  expect_same_dtype(c, 0, i);
  expect_rank(c, i, 4, "bias");
  const Shape& bias = c[i].shape;
  const auto fits = [](const Dim& d, const Dim& full) { return d.is(1) || d == full; };
  const bool shared = fits(bias[0], s.batch) || (!bias[0].is(0) && exact_div(s.batch, bias[0]));
  if (shared && fits(bias[1], s.heads) && fits(bias[2], s.queries) && fits(bias[3], s.keys)) return;
  user_error("bias is {}, expected [{} (or a divisor), {}, {}, {}] or 1 in any place",
             bias.to_string(), s.batch.to_string(), s.heads.to_string(), s.queries.to_string(),
             s.keys.to_string());
}

void check_extras(const InferContext& c, const AttentionOperands& at, const Sizes& s) {
  if (at.mask >= 0) {
    const TensorType expected{DType::kBool, {s.batch, s.keys}};
    if (c[size_t(at.mask)] != expected) {
      user_error("the mask must be {} (batch, keys; true keeps a key), it is {}",
                 expected.to_string(), c[size_t(at.mask)].to_string());
    }
  }
  if (at.bias >= 0) check_bias(c, size_t(at.bias), s);
  const auto check_length = [&](int i, std::string_view name) {
    if (i < 0) return;
    const TensorType& t = c[size_t(i)];
    if (t.dtype == DType::kI64 && (t.shape.rank() == 0 || t.shape == Shape{s.batch})) return;
    user_error("{} must be i64[] or i64[{}], it is {}", name, s.batch.to_string(), t.to_string());
  };
  check_length(at.kv_len, "kv_len");
  check_length(at.q_len, "q_len");
}

// The type of the forward result.
TensorType check_call(const InferContext& c, const AttentionAttrs& a, int inputs) {
  check_attrs(a);
  const AttentionOperands at(a, inputs);
  expect_operands(c, size_t(at.count));
  const Sizes s = check_inputs(c, a.layout);
  check_extras(c, at, s);
  TensorType y = c[0];
  y.shape[3] = s.v_width;
  return y;
}

std::vector<TensorType> infer_forward(const InferContext& c) {
  return {check_call(c, c.as<AttentionAttrs>(), kAttentionInputs)};
}

std::vector<TensorType> gradient_types(const InferContext& c, const AttentionAttrs& a) {
  const TensorType y = check_call(c, a, kAttentionBackwardInputs);
  if (c[3] != y) user_error("dy must be {}, it is {}", y.to_string(), c[3].to_string());
  std::vector<TensorType> types = {c[0], c[1], c[2]};
  const AttentionOperands at(a, kAttentionBackwardInputs);
  if (at.bias >= 0) types.push_back(c[size_t(at.bias)]);
  return types;
}

std::vector<TensorType> infer_backward_all(const InferContext& c) {
  return gradient_types(c, c.as<AttentionAttrs>());
}

std::vector<TensorType> infer_backward(const InferContext& c) {
  const auto& a = c.as<AttentionBackwardAttrs>();
  if (a.wrt == AttentionInput::kBias && !a.has_bias) {
    user_error("wrt = Bias needs a bias operand (has_bias)");
  }
  return {gradient_types(c, forward_attrs(a))[size_t(a.wrt)]};
}

// A mask operand without another kind of mask is Custom; a cap that is not positive is none.
template <class S>
Attrs normalize(const InferContext& c) {
  S a = c.as<S>();
  const bool custom = a.has_mask && a.mask == AttentionMask::kNone;
  const bool uncapped = a.softcap && *a.softcap <= 0;
  if (!custom && !uncapped) return c.attrs;
  if (custom) a.mask = AttentionMask::kCustom;
  if (uncapped) a.softcap.reset();
  return Attrs::of(c.attrs.table(), std::move(a));
}

std::vector<Value> call_backward(Builder& b, const AttentionAttrs& a,
                                 std::span<const Value> forward_operands, Value dy) {
  std::vector<Value> operands;
  for (const Value v : forward_operands) {
    if (operands.size() == kAttentionInputs) operands.push_back(dy);
    operands.push_back(v);
  }
  if (operands.size() == kAttentionInputs) operands.push_back(dy);
  return b.call(kAttentionBackwardAllOp, Attrs::of(kAttentionBackwardAllOp.fields, a), operands);
}

std::vector<Value> vjp(Builder& b, const RuleCall& call, std::span<const Value> cotangents) {
  const auto& a = call.as<AttentionAttrs>();
  const std::vector<Value> d = call_backward(b, a, call.operands, cotangents[0]);
  std::vector<Value> gradients = {d[0], d[1], d[2]};
  gradients.resize(call.operands.size());
  const AttentionOperands at(a, kAttentionInputs);
  if (at.bias >= 0) gradients[size_t(at.bias)] = d[3];
  return gradients;
}

std::vector<Value> expand_part(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  const auto& a = attrs.as<AttentionBackwardAttrs>();
  const auto all = b.call(kAttentionBackwardAllOp,
                          Attrs::of(kAttentionBackwardAllOp.fields, forward_attrs(a)), operands);
  return {all[size_t(a.wrt)]};
}

// The batch axis joins that of the op. A bias of one entry stays shared where nothing is summed.
std::vector<Value> fold_operands(Builder& b, const AttentionAttrs& a, int inputs,
                                 std::span<const Value> operands, std::span<const uint8_t> batched,
                                 const Dim& size) {
  const AttentionOperands at(a, inputs);
  const Shape& q = b.shape(operands[0]);
  const Dim batch = q[batched[0] ? 1 : 0];
  std::vector<Value> folded;
  for (int i = 0; i < at.count; ++i) {
    Value x = operands[size_t(i)];
    const bool has = batched[size_t(i)] != 0;
    const bool length = i == at.kv_len || i == at.q_len;
    if (length && b.shape(x).rank() == (has ? 1 : 0)) {  // one for the whole batch
      if (has) x = fold_batch(b, expand(b, unsqueeze(b, x, 1), {size, batch}));
    } else if (!(i == at.bias && !has && inputs == kAttentionInputs && b.shape(x)[0].is(1))) {
      x = fold_batch(b, with_batch(b, x, has, size));
    }
    folded.push_back(x);
  }
  return folded;
}

std::vector<Value> batch_call(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                              const Dim& size, int inputs) {
  const auto& a = call.as<AttentionAttrs>();
  const AttentionOperands at(a, inputs);
  const Dim batch = b.shape(call.operands[0])[batched[0] ? 1 : 0];
  std::vector<Value> results =
      b.call(call.op, call.attrs, fold_operands(b, a, inputs, call.operands, batched, size));
  for (size_t i = 0; i < results.size(); ++i) {
    const bool bias = i == 3;
    const auto at_bias = size_t(bias ? at.bias : 0);
    const Dim inner = bias ? b.shape(call.operands[at_bias])[batched[at_bias] ? 1 : 0] : batch;
    results[i] = unfold_batch(b, results[i], 0, size, inner);
  }
  return results;
}

std::vector<Value> batch_forward(Builder& b, const RuleCall& call, std::span<const uint8_t> batched,
                                 const Dim& size) {
  return batch_call(b, call, batched, size, kAttentionInputs);
}

std::vector<Value> batch_backward(Builder& b, const RuleCall& call,
                                  std::span<const uint8_t> batched, const Dim& size) {
  return batch_call(b, call, batched, size, kAttentionBackwardInputs);
}

double pairs(const CostContext& c) {
  const auto& a = c.attrs.as<AttentionAttrs>();
  const auto dims = [&](size_t i) { return c.operands[i].shape.static_dims(); };
  return attention_pairs(a, attention_sizes<int64_t>(a.layout, dims(0), dims(1), dims(2)));
}

double widths(const CostContext& c) {
  return double(c.operands[0].shape[3].value() + c.operands[2].shape[3].value());
}

Cost cost_forward(const CostContext& c) { return {pairs(c) * (2 * widths(c) + 5), io_bytes(c)}; }

Cost cost_backward(const CostContext& c) { return {pairs(c) * (5 * widths(c) + 10), io_bytes(c)}; }

// Lengths say how much of the sequences there is; without them the sequences must be whole.
TailRule tail_of(const InferContext& c, size_t inputs, size_t operand, int64_t axis) {
  const auto& a = c.as<AttentionAttrs>();
  const AttentionOperands at(a, int(inputs));
  if (operand >= inputs) {
    const bool length = int(operand) == at.kv_len || int(operand) == at.q_len;
    return length || axis == 0           ? TailRule::kZero
           : a.has_kv_len && a.has_q_len ? TailRule::kIgnored
                                         : TailRule::kRefused;
  }
  const bool keys = operand == 1 || operand == 2;
  if (axis == sequence_axis(a.layout)) {
    return (keys ? a.has_kv_len : a.has_q_len) ? TailRule::kIgnored : TailRule::kRefused;
  }
  return axis == 0 ? TailRule::kIgnored : TailRule::kRefused;
}

TailRule tail(const InferContext& c, size_t operand, int64_t axis) {
  return tail_of(c, kAttentionInputs, operand, axis);
}

// The gradient of a bias sums over what shares it.
TailRule tail_backward(const InferContext& c, size_t operand, int64_t axis) {
  if (axis == 0 && c.as<AttentionAttrs>().has_bias) return TailRule::kRefused;
  return tail_of(c, kAttentionBackwardInputs, operand, axis);
}

}  // namespace

RLX_DEFINE_OP(Attention) = {
    .name = "Attention",
    .fields = RLX_FIELDS(AttentionAttrs, layout, mask, window, scale, softcap, has_mask, has_bias,
                         has_kv_len, has_q_len),
    .doc = R"(Multi-head scaled dot-product attention.

q [B, Sq, H, D], k [B, Sk, Hkv, D], v [B, Sk, Hkv, Dv] (layout BSHD) or with the axes of sequence and
heads swapped (BHSD), of one float type, give y [B, Sq, H, Dv] in the layout of q. Query head h uses
the keys of head h div (H / Hkv); Hkv divides H. Then, as the flags say and in this order:
  mask    bool [B, Sk]: false hides a key
  bias    [Bb, Hb, Sqb, Skb] of the type of q, each the full size or 1; Bb may divide B, entry b
          then uses bias b div (B / Bb)
  kv_len  i64 [] or [B]: keys from kv_len on are hidden and never read, default Sk
  q_len   i64 [] or [B]: rows from q_len on see nothing, default Sq
For a row i and a key j of one head:
  s = scale * <q_i, k_j>; with a softcap c: s = c * tanh(s / c), c of 0 and below means none; s += bias
  y_i = sum of p_j v_j,  p_j = exp(s_j - m) / sum of exp(s - m), m the maximum, over the keys that i
  sees: those that mask and lengths leave, and with off = kv_len - q_len
  Causal         j <= i + off
  SlidingWindow  i + off - window <= j <= i + off
  Custom         the mask operand alone (None with a mask operand means the same)
A row that sees no key, or only scores of -inf, is 0, and so are its gradients. What no row of a batch
entry sees (keys from kv_len on, masked keys, rows from q_len on) has no influence, NaN included. A
row that sees a score of NaN or +inf is NaN. f16 and bf16 are computed in f32 and rounded once.
Errors: sizes that do not match, a window without SlidingWindow; at run time a kv_len outside of
[0, Sk] or a q_len outside of [0, Sq].
Decomposition: it cannot raise errors of lengths, which there count as they are, in off too. NaN or
infinity at a key or row that only some of its partners see reaches the others, as 0 * NaN.
Derivative: AttentionBackwardAll; none for mask and lengths. The forward pass saves nothing.
Compare: torch.nn.functional.scaled_dot_product_attention, jax.nn.dot_product_attention.
Source: Vaswani et al., Attention is all you need; Dao et al., FlashAttention, for the tiling.)",
    .infer = infer_forward,
    .normalize = normalize<AttentionAttrs>,
    .decompose = {.expand = expand_attention},
    .vjp = vjp,
    .batching = batch_forward,
    .cost = cost_forward,
    .tail = tail,
};

RLX_DEFINE_OP(AttentionBackwardAll) = {
    .name = "AttentionBackwardAll",
    .fields = RLX_FIELDS(AttentionAttrs, layout, mask, window, scale, softcap, has_mask, has_bias,
                         has_kv_len, has_q_len),
    .doc = R"(All gradients of Attention.

Operands q, k, v, dy (the type of the forward result), then mask, bias, kv_len, q_len as the flags
say. Results dq, dk, dv and, with a bias, dbias, of the types of q, k, v and bias; those that nobody
reads are not computed. With p the probabilities of the forward pass, computed again:
  dv_j = sum over i of p_ij dy_i           (over the query heads that share the key too)
  ds_ij = p_ij (<dy_i, v_j> - sum over k of p_ik <dy_i, v_k>)
  dbias = ds, summed over what the bias repeats; 0 if it is one number for all keys of a row
  ds_ij *= 1 - (s_ij / c)^2                with a softcap c, s before the bias
  dq_i = scale * sum over j of ds_ij k_j,  dk_j = scale * sum over i of ds_ij q_i
Gradients of hidden keys and of rows that see no key are 0. The decomposition as that of Attention.
Errors: as Attention; dy of another type than the forward result.
Derivative: that of the decomposition.
Compare: the gradients of torch.nn.functional.scaled_dot_product_attention.)",
    .infer = infer_backward_all,
    .normalize = normalize<AttentionAttrs>,
    .decompose = {.expand = expand_attention_backward},
    .batching = batch_backward,
    .cost = cost_backward,
    .tail = tail_backward,
};

RLX_DEFINE_OP(AttentionBackward) = {
    .name = "AttentionBackward",
    .fields = RLX_FIELDS(AttentionBackwardAttrs, wrt, layout, mask, window, scale, softcap,
                         has_mask, has_bias, has_kv_len, has_q_len),
    .doc = R"(One gradient of Attention: the result of AttentionBackwardAll that `wrt` names.

Operands and the other attributes as AttentionBackwardAll; the result has the type of q, k, v or bias.
Errors: as AttentionBackwardAll; wrt = Bias without a bias.)",
    .infer = infer_backward,
    .normalize = normalize<AttentionBackwardAttrs>,
    .decompose = {.expand = expand_part},
};

Value attention(Builder& b, Value q, Value k, Value v, AttentionAttrs attrs,
                const AttentionExtras& extras) {
  attrs.has_mask = extras.mask.valid();
  attrs.has_bias = extras.bias.valid();
  attrs.has_kv_len = extras.kv_len.valid();
  attrs.has_q_len = extras.q_len.valid();
  std::vector<Value> operands = {q, k, v};
  for (const Value x : {extras.mask, extras.bias, extras.kv_len, extras.q_len}) {
    if (x.valid()) operands.push_back(x);
  }
  return b.call(kAttentionOp, Attrs::of(kAttentionOp.fields, attrs), operands)[0];
}

Value attention(Builder& b, Value q, Value k, Value v, AttentionAttrs attrs) {
  return attention(b, q, k, v, attrs, AttentionExtras{});
}

Value attention_packed(Builder& b, Value q, Value k, Value v, int64_t num_heads,
                       int64_t num_kv_heads, AttentionAttrs attrs, const AttentionExtras& extras) {
  if (attrs.layout != AttentionLayout::kBshd) user_error("packed attention has the layout BSHD");
  const int64_t rank = b.shape(q).rank();
  const auto split = [&](Value x, int64_t heads, std::string_view name) {
    const Shape shape = b.shape(x);
    if ((rank != 2 && rank != 3) || shape.rank() != rank) {
      user_error("{} of packed attention must be [S, H * D] or [B, S, H * D] as q, it is {}", name,
                 shape.to_string());
    }
    const std::optional<Dim> width =
        heads > 0 ? exact_div(shape[rank - 1], Dim(heads)) : std::nullopt;
    if (!width) {
      user_error("{} has the width {}, no multiple of {} heads", name, shape[rank - 1].to_string(),
                 heads);
    }
    return reshape(b, x, {rank == 3 ? shape[0] : Dim(1), shape[rank - 2], heads, *width});
  };
  const Value y = attention(b, split(q, num_heads, "q"), split(k, num_kv_heads, "k"),
                            split(v, num_kv_heads, "v"), attrs, extras);
  const Shape shape = b.shape(y);
  Shape joined{shape[0], shape[1], shape[2] * shape[3]};
  if (rank == 2) joined.erase(0);
  return reshape(b, y, std::move(joined));
}

}  // namespace rlx
