// Recipes of rows: norms, sorting, attention, windows at run-time places, quantized products,
// draws.
#include <fmt/format.h>

#include <algorithm>

#include "rlx/ops/attention.h"
#include "rlx/ops/build.h"
#include "rlx/ops/dequant_matmul.h"
#include "rlx/ops/dim_size.h"
#include "rlx/ops/dynamic_slice.h"
#include "rlx/ops/kv_append.h"
#include "rlx/ops/layer_norm.h"
#include "rlx/ops/qmatmul.h"
#include "rlx/ops/quantize.h"
#include "rlx/ops/rms_norm.h"
#include "rlx/ops/rope.h"
#include "rlx/ops/sort.h"
#include "rlx/testing/graph_generator.h"

namespace rlx {

Value GraphGenerator::make_rms_norm() {
  const Value v = pick_ranked(1);
  const int64_t axis = random_axis(v);
  const Shape row = b_.shape(v).slice(axis, rank(v));
  if (!row.is_static()) return v;
  Value gamma, beta;
  if (!dice_.once_in(3)) gamma = random_constant(row.static_dims());
  if (gamma.valid() && dice_.once_in(2)) beta = random_constant(row.static_dims());
  return rms_norm(b_, v, gamma, beta, axis, 0.1);
}

// Several results; which of them are used is left to later calls.
Value GraphGenerator::make_norm_backward() {
  const Value v = pick_ranked(1);
  const int64_t axis = random_axis(v);
  Dims row = dims(v);
  row.erase(row.begin(), row.begin() + axis);
  const Value gamma = random_constant(row), dy = dice_.once_in(2) ? v : tanh(b_, v);
  const NormAttrs attrs{.axis = axis, .eps = 0.1};
  return keep(dice_.once_in(2) ? layer_norm_backward(b_, v, gamma, dy, attrs)
                               : rms_norm_backward(b_, v, gamma, dy, attrs));
}

Value GraphGenerator::make_sort() {
  const Value v = pick_ranked(1);
  const int64_t axis = random_axis(v);
  if (!b_.shape(v)[axis].is_static()) return v;
  const auto r = sort(b_, v, {.axis = axis, .descending = dice_.once_in(2)});
  return dice_.once_in(2) ? r[0] : take_along(b_, tanh(b_, v), r[1], axis);
}

Value GraphGenerator::make_top_k() {
  const Value v = pick_ranked(1);
  const int64_t axis = random_axis(v);
  if (!b_.shape(v)[axis].is_static()) return v;
  TopKAttrs attrs{.k = dice_.below(b_.shape(v)[axis].value() + 1), .axis = axis};
  attrs.largest = dice_.once_in(2);
  attrs.sorted = !dice_.once_in(3);
  const auto r = top_k(b_, v, attrs);
  return dice_.once_in(2) ? r[0] : take_along(b_, v, r[1], axis);
}

Value GraphGenerator::make_rope() {
  const Value v = pick_ranked(3);
  const int64_t width = dims(v).back();
  if (width < 2 || width % 2 != 0) return v;
  RopeAttrs attrs{.n_rot = 2 * (1 + dice_.below(width / 2))};
  attrs.style = dice_.once_in(2) ? RopeStyle::kNeoX : RopeStyle::kGptJ;
  attrs.layout = dice_.once_in(2) ? RopeLayout::kBSHD : RopeLayout::kBHSD;
  const int64_t tokens = dims(v)[size_t(rank(v) - (attrs.layout == RopeLayout::kBSHD ? 3 : 2))];
  const Dims table{tokens + 3, attrs.n_rot / 2};
  const Value start = dice_.once_in(2) ? at_most(pick_count(), 3) : Value();
  const Value cos = random_constant(table);
  return rope(b_, v, cos, random_constant(table), attrs, start);
}

Value GraphGenerator::make_attention() {
  Value q = pick_ranked(4);
  while (rank(q) > 4) q = sum(b_, q, {0});
  const Value k = dice_.once_in(2) ? q : tanh(b_, q);
  AttentionAttrs attrs;
  attrs.layout = dice_.once_in(2) ? AttentionLayout::kBshd : AttentionLayout::kBhsd;
  attrs.mask = dice_.pick(
      std::vector{AttentionMask::kNone, AttentionMask::kCausal, AttentionMask::kSlidingWindow});
  if (attrs.mask == AttentionMask::kSlidingWindow) attrs.window = dice_.below(3);
  if (dims(q)[3] == 0) attrs.scale = 1;
  AttentionExtras extras;
  const int64_t keys = dims(q)[size_t(sequence_axis(attrs.layout))];
  if (dice_.once_in(2)) extras.kv_len = at_most(pick_count(), keys);
  return attention(b_, q, k, dice_.once_in(2) ? q : k, attrs, extras);
}

Value GraphGenerator::make_window() {
  const Value v = pick_ranked(1);
  const int64_t axis = random_axis(v), size = dims(v)[size_t(axis)];
  const int64_t length = dice_.below(size + 1);
  const Value start = at_most(pick_count(), size - length);
  const Value window = dynamic_slice(b_, v, start, {.axes = {axis}, .sizes = {length}});
  if (dice_.once_in(2)) return window;
  const Value other = at_most(pick_count(), size - length);
  return dynamic_update_slice(b_, dice_.once_in(2) ? v : tanh(b_, v), window, other,
                              {.axes = {axis}});
}

// Into a value, or a param that lives from run to run.
Value GraphGenerator::make_kv_append() {
  const Value v = pick_ranked(1);
  const int64_t axis = random_axis(v), size = dims(v)[size_t(axis)];
  if (depth_ == 0 && dice_.once_in(2)) {
    Dims shape = dims(v);
    shape[size_t(axis)] += dice_.below(4);
    const std::string name = fmt::format("cache{}", params_++);
    const Value cache = param(b_, name, dtype_, Shape(std::span<const int64_t>(shape)), true);
    const Value pos = at_most(pick_count(), shape[size_t(axis)] - size);
    const Value result = kv_append(b_, cache, v, pos, axis);
    updates_.push_back({name, result});
    if (dice_.once_in(3) && fits(cache)) values_.push_back(cache);  // read beside the update
    return result;
  }
  const int64_t rows = dice_.below(size + 1);
  const Value window = narrow(b_, tanh(b_, v), axis, 0, rows);
  return kv_append(b_, v, window, at_most(pick_count(), size - rows), axis);
}

Value GraphGenerator::make_size() {
  const Value v = pick_ranked(1);
  return div(b_, v, add(b_, cast(b_, dim_size(b_, v, random_axis(v)), dtype_), 1));
}

Value GraphGenerator::make_packed_product() {
  const Value v = pick_ranked(2);
  const Dim& width = b_.shape(v)[rank(v) - 1];
  if (!width.is_static() || dtype_ == DType::kF64) return v;
  constexpr int64_t kBlock = 32;
  const Value x = matmul(b_, v, random_constant({width.value(), kBlock}));
  QuantizeAttrs codes{.dtype = dice_.once_in(2) ? DType::kQ8_0 : DType::kQ4_0};
  const Array dense = random_array(dice_, DType::kF32, {1 + dice_.below(9), kBlock});
  DequantMatMulAttrs attrs;
  if (dice_.once_in(2)) attrs.activations = MatMulActivations::kInt8Block;
  return dequant_matmul(b_, x, quantize(b_, constant(b_, dense), codes), attrs);
}

Value GraphGenerator::make_int8_product() {
  const Value v = pick_ranked(1);
  const Dim& width = b_.shape(v)[rank(v) - 1];
  if (!width.is_static()) return v;
  const Value x = cast(b_, tanh(b_, v), DType::kF32);
  const Array w = random_array(dice_, DType::kI8, {width.value(), 1 + dice_.below(9)});
  const Value y =
      qmatmul(b_, quantize(b_, x, {.scales = {0.0078125}, .zero_points = {dice_.below(5)}}),
              constant(b_, w), {}, {.x_zero_point = 1, .multipliers = {0.03125}});
  return cast(b_, dequantize(b_, y, {.scales = {0.03125}, .zero_points = {0}}), dtype_);
}

Value GraphGenerator::make_random() {
  const Value v = pick(), seed = cast(b_, pick_count(), DType::kU64);
  const int64_t key = dice_.below(100);
  const Value noise = dice_.once_in(2) ? rng_uniform(b_, dtype_, b_.shape(v), -1, 1, key, seed)
                                       : rng_normal(b_, dtype_, b_.shape(v), 0, 1, key, seed);
  return add(b_, v, noise);
}

}  // namespace rlx
