// Attention and its gradients in terms of other kinds, all in rank 5: [B, Hkv, G, S, width], with
// G query heads for each head of keys and values.
#include <cmath>
#include <limits>

#include "rlx/ops/attention.h"
#include "rlx/ops/binary.h"
#include "rlx/ops/build.h"
#include "rlx/ops/compare.h"
#include "rlx/ops/reduce.h"

namespace rlx {
namespace {

constexpr int64_t kGroup = 2, kRow = 3, kColumn = 4;  // axes of the scores

using Sizes = AttentionSizes<Dim>;

Dim group_size(const Sizes& s) {
  if (s.heads == s.kv_heads) return 1;
  return exact_div(s.heads, s.kv_heads).value();
}

// [B, Hkv, G, S, width] from the layout of the call.
Value split_heads(Builder& b, Value x, AttentionLayout layout, Dim kv_heads, Dim group) {
  if (layout == AttentionLayout::kBshd) x = transpose(b, x, {0, 2, 1, 3});
  const Shape& s = b.shape(x);
  return reshape(b, x, {s[0], std::move(kv_heads), std::move(group), s[2], s[3]});
}

// The other way; axis 1 and 2 join to `heads`.
Value join_heads(Builder& b, Value x, AttentionLayout layout, Dim heads) {
  const Shape& s = b.shape(x);
  x = reshape(b, x, {s[0], std::move(heads), s[3], s[4]});
  return layout == AttentionLayout::kBshd ? transpose(b, x, {0, 2, 1, 3}) : x;
}

// A size as a scalar value (i64), symbolic or not.
Value size_value(Builder& b, const Dim& size, DType dtype) {
  if (size.is_static()) return scalar(b, dtype, double(size.value()));
  return sum(b, splat(b, dtype, {size}, 1), {0});
}

// kv_len or q_len against the scores; the size if it is absent.
Value length(Builder& b, std::span<const Value> operands, int at, const Dim& size) {
  if (at < 0) return size_value(b, size, DType::kI64);
  const Value v = operands[size_t(at)];
  if (b.shape(v).rank() == 0) return v;
  return reshape(b, v, {b.shape(v)[0], 1, 1, 1, 1});
}

Value both(Builder& b, Value x, Value y) {
  if (!x.valid()) return y;
  return y.valid() ? binary(b, BinaryKind::kBitAnd, x, y) : x;
}

// Which key each query sees: bool [B | 1, 1, 1, Sq | 1, Sk | 1], invalid if all.
Value kept(Builder& b, const AttentionAttrs& a, const AttentionOperands& at,
           std::span<const Value> operands, const Sizes& s) {
  const Value key = iota(b, DType::kI64, {1, 1, 1, 1, s.keys}, kColumn);
  const Value query = iota(b, DType::kI64, {1, 1, 1, s.queries, 1}, kRow);
  Value keep;
  if (at.mask >= 0) keep = reshape(b, operands[size_t(at.mask)], {s.batch, 1, 1, 1, s.keys});
  const Value kv_len = length(b, operands, at.kv_len, s.keys);
  const Value q_len = length(b, operands, at.q_len, s.queries);
  if (at.kv_len >= 0) keep = both(b, keep, less(b, key, kv_len));
  if (at.q_len >= 0) keep = both(b, keep, less(b, query, q_len));
  const bool window = a.mask == AttentionMask::kSlidingWindow;
  if (!window && a.mask != AttentionMask::kCausal) return keep;
  const Value ahead = sub(b, key, query), offset = sub(b, kv_len, q_len);
  keep = both(b, keep, compare(b, CompareKind::kLe, ahead, offset));
  if (window) {
    const Value first = sub(b, offset, constant(b, Array::scalar<int64_t>(a.window)));
    keep = both(b, keep, compare(b, CompareKind::kGe, ahead, first));
  }
  return keep;
}

// The bias against the scores.
Value align_bias(Builder& b, Value bias, const Sizes& s) {
  Shape shape = b.shape(bias);
  if (!shape[0].is(1) && shape[0] != s.batch) {
    const Dim repeats = exact_div(s.batch, shape[0]).value();
    bias = reshape(b, bias, {shape[0], 1, shape[1], shape[2], shape[3]});
    bias = expand(b, bias, {shape[0], repeats, shape[1], shape[2], shape[3]});
    shape[0] = s.batch;
  }
  const bool one = shape[1].is(1);
  return reshape(
      b, bias,
      {shape[0], one ? Dim(1) : s.kv_heads, one ? Dim(1) : group_size(s), shape[2], shape[3]});
}

// Sums d over what the bias repeats; the shape of the bias.
Value bias_gradient(Builder& b, Value d, Shape bias, const Sizes& s) {
  const Dim& groups = bias[0];
  if (!groups.is(1) && groups != s.batch) {
    const Dim repeats = exact_div(s.batch, groups).value();
    const Shape& from = b.shape(d);
    d = sum(b, reshape(b, d, {groups, repeats, from[1], from[2], from[3], from[4]}), {1});
  }
  const Shape& from = b.shape(d);
  return unbroadcast(b, reshape(b, d, {from[0], s.heads, s.queries, s.keys}), bias);
}

struct Scores {
  Sizes sizes;
  Value q, k, v;                   // those that no partner sees are 0
  Value keep, row_seen, key_seen;  // invalid: all
  Value scale;
  Value capped;  // before the bias
  Value p;
};

Value or_zero(Builder& b, Value condition, Value x) {
  return condition.valid() ? where(b, condition, x, scalar(b, b.dtype(x), 0)) : x;
}

Value scale_of(Builder& b, const AttentionAttrs& a, DType dtype, const Dim& width) {
  if (a.scale) return scalar(b, dtype, *a.scale);
  if (width.is_static()) {
    return scalar(b, dtype, 1 / std::sqrt(double(std::max<int64_t>(width.value(), 1))));
  }
  return rsqrt(b, size_value(b, width, dtype));
}

Scores scores_of(Builder& b, const AttentionAttrs& a, std::span<const Value> operands, int inputs) {
  const AttentionOperands at(a, inputs);
  Scores r;
  r.sizes = attention_sizes<Dim>(a.layout, b.shape(operands[0]), b.shape(operands[1]),
                                 b.shape(operands[2]));
  const Sizes& s = r.sizes;
  const DType dtype = b.dtype(operands[0]);
  r.keep = kept(b, a, at, operands, s);
  if (r.keep.valid()) {
    r.row_seen = reduce(b, ReduceKind::kOr, r.keep, {kColumn}, true);
    r.key_seen = swap_last_axes(b, reduce(b, ReduceKind::kOr, r.keep, {kRow}, true));
  }
  r.q = or_zero(b, r.row_seen, split_heads(b, operands[0], a.layout, s.kv_heads, group_size(s)));
  r.k = or_zero(b, r.key_seen, split_heads(b, operands[1], a.layout, s.kv_heads, 1));
  r.v = or_zero(b, r.key_seen, split_heads(b, operands[2], a.layout, s.kv_heads, 1));
  r.scale = scale_of(b, a, dtype, s.width);
  r.capped = mul(b, matmul(b, r.q, swap_last_axes(b, r.k)), r.scale);
  if (a.softcap) r.capped = mul(b, tanh(b, div(b, r.capped, *a.softcap)), *a.softcap);
  Value x = r.capped;
  if (at.bias >= 0) x = add(b, x, align_bias(b, operands[size_t(at.bias)], s));
  const Value lowest = scalar(b, dtype, -std::numeric_limits<double>::infinity());
  const Value zero = scalar(b, dtype, 0), one = scalar(b, dtype, 1);
  if (r.keep.valid()) x = where(b, r.keep, x, lowest);
  // The result does not depend on what is subtracted, so no derivative needs to pass here.
  Value m = stop_gradient(b, reduce(b, ReduceKind::kMax, x, {kColumn}, true));
  m = where(b, compare(b, CompareKind::kGt, m, lowest), m, zero);
  const Value e = or_zero(b, r.keep, exp(b, sub(b, x, m)));
  const Value z = sum(b, e, {kColumn}, true);
  r.p = div(b, e, where(b, compare(b, CompareKind::kGt, z, zero), z, one));
  return r;
}

}  // namespace

std::vector<Value> expand_attention(Builder& b, const Attrs& attrs,
                                    std::span<const Value> operands) {
  const auto& a = attrs.as<AttentionAttrs>();
  const Scores s = scores_of(b, a, operands, kAttentionInputs);
  const Value o = or_zero(b, s.row_seen, matmul(b, s.p, s.v));
  return {join_heads(b, o, a.layout, s.sizes.heads)};
}

std::vector<Value> expand_attention_backward(Builder& b, const Attrs& attrs,
                                             std::span<const Value> operands) {
  const auto& a = attrs.as<AttentionAttrs>();
  const Scores s = scores_of(b, a, operands, kAttentionBackwardInputs);
  const Dim group = group_size(s.sizes);
  const Value dy =
      or_zero(b, s.row_seen, split_heads(b, operands[3], a.layout, s.sizes.kv_heads, group));
  const auto to_keys = [&](Value weights, Value rows) {  // [Hkv, 1, Sk, width]
    const Value d = sum(b, matmul(b, swap_last_axes(b, weights), rows), {kGroup}, true);
    return join_heads(b, or_zero(b, s.key_seen, d), a.layout, s.sizes.kv_heads);
  };
  const Value dp = matmul(b, dy, swap_last_axes(b, s.v));
  const Value mean = sum(b, mul(b, s.p, dp), {kColumn}, true);
  Value ds = or_zero(b, s.keep, mul(b, s.p, sub(b, dp, mean)));
  std::vector<Value> results(3);
  results[2] = to_keys(s.p, dy);
  const AttentionOperands at(a, kAttentionBackwardInputs);
  if (at.bias >= 0) {
    const Value bias = operands[size_t(at.bias)];
    // One number for all keys of a row changes nothing.
    results.push_back(b.shape(bias)[3].is(1) ? zeros_like(b, bias)
                                             : bias_gradient(b, ds, b.shape(bias), s.sizes));
  }
  if (a.softcap) {
    const Value t = div(b, s.capped, *a.softcap);
    ds = mul(b, ds, sub(b, scalar(b, b.dtype(t), 1), mul(b, t, t)));
  }
  ds = mul(b, ds, s.scale);
  const Value dq = or_zero(b, s.row_seen, matmul(b, ds, s.k));
  results[0] = join_heads(b, dq, a.layout, s.sizes.heads);
  results[1] = to_keys(ds, s.q);
  return results;
}

}  // namespace rlx
