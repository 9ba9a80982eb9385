// Functions that append one op each: the vocabulary of users, rules and decompositions.
// Binary functions do not convert operands: both dtypes must be equal, or promote() them first by
// cast(); shapes broadcast as in NumPy.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "rlx/ir/builder.h"

namespace rlx {

enum class ActivationKind : uint8_t;
enum class BinaryKind : uint8_t;
enum class CompareKind : uint8_t;
enum class ReduceKind : uint8_t;

// Leaves (ops/leaf.cc)
Value input(Builder& b, std::string_view name, DType dtype, Shape shape);
Value param(Builder& b, std::string_view name, DType dtype, Shape shape, bool is_mutable = false);
Value constant(Builder& b, Array value);
// `value` rounded to dtype, everywhere in shape; a splat, whatever the size.
Value splat(Builder& b, DType dtype, Shape shape, double value);
Value scalar(Builder& b, DType dtype, double value);
Value zeros_like(Builder& b, Value x);
Value iota(Builder& b, DType dtype, Shape shape, int64_t axis);

// Elementwise (ops/elementwise.cc, ops/activation.cc, ...)
Value binary(Builder& b, BinaryKind kind, Value x, Value y);
Value add(Builder& b, Value x, Value y);
Value sub(Builder& b, Value x, Value y);
Value mul(Builder& b, Value x, Value y);
Value div(Builder& b, Value x, Value y);
Value maximum(Builder& b, Value x, Value y);
Value minimum(Builder& b, Value x, Value y);
Value pow(Builder& b, Value x, Value y);
// With a number of the same dtype as x.
Value add(Builder& b, Value x, double y);
Value sub(Builder& b, Value x, double y);
Value mul(Builder& b, Value x, double y);
Value div(Builder& b, Value x, double y);
Value activation(Builder& b, ActivationKind kind, Value x);
Value activation_backward(Builder& b, ActivationKind kind, Value x, Value dy);
Value relu(Builder& b, Value x);
Value neg(Builder& b, Value x);
Value exp(Builder& b, Value x);
Value log(Builder& b, Value x);
Value tanh(Builder& b, Value x);
Value sigmoid(Builder& b, Value x);
Value sqrt(Builder& b, Value x);
Value rsqrt(Builder& b, Value x);
Value conjugate(Builder& b, Value x);                           // itself if x is real
Value cast(Builder& b, Value x, DType to);                      // itself if x has that dtype
Value compare(Builder& b, CompareKind kind, Value x, Value y);  // bool
Value equal(Builder& b, Value x, Value y);
Value less(Builder& b, Value x, Value y);
Value where(Builder& b, Value condition, Value x, Value y);
Value fma(Builder& b, Value x, Value y, Value z);  // x y + z, rounded once
Value stop_gradient(Builder& b, Value x);
// One call for a chain of elementwise ops; see rlx/ops/elementwise_region.h.
std::vector<Value> elementwise_region(Builder& b, GraphRef body, std::span<const Value> operands,
                                      bool strict_rounding = false);
// The same chain over several planes, concatenated along axis 0.
std::vector<Value> batch_elementwise_region(Builder& b, GraphRef body,
                                            std::span<const Value> planes,
                                            bool strict_rounding = false);
// Doubles the last two axes, step by step; see rlx/ops/transform_region.h.
Value transform_region(Builder& b, std::span<const Value> operands, std::vector<int64_t> steps);

// Shape (ops/shape_ops.cc, ops/concat.cc)
Value reshape(Builder& b, Value x, Shape shape);
Value transpose(Builder& b, Value x, std::vector<int64_t> perm);
Value move_axis(Builder& b, Value x, int64_t from, int64_t to);
Value swap_last_axes(Builder& b, Value x);
Value expand(Builder& b, Value x, Shape shape);
Value unsqueeze(Builder& b, Value x, int64_t axis);  // a new axis of size 1 before `axis`
Value squeeze(Builder& b, Value x, int64_t axis);
Value narrow(Builder& b, Value x, int64_t axis, Dim start, Dim length);
Value concat(Builder& b, std::span<const Value> parts, int64_t axis);
// x with `before` and `after` copies of `value` on `axis` (by Concat; no-op where both are 0).
Value pad_axis(Builder& b, Value x, int64_t axis, Dim before, Dim after, double value);

// Reduction and contraction
Value reduce(Builder& b, ReduceKind kind, Value x, std::vector<int64_t> axes,
             bool keep_dims = false);
Value sum(Builder& b, Value x, std::vector<int64_t> axes, bool keep_dims = false);
Value mean(Builder& b, Value x, std::vector<int64_t> axes, bool keep_dims = false);
Value matmul(Builder& b, Value x, Value y);
struct DotGeneralAttrs;
Value dot_general(Builder& b, Value lhs, Value rhs, DotGeneralAttrs attrs);

// Indexing
// Rows of a packed table are decoded to f32.
Value gather(Builder& b, Value table, Value indices, int64_t axis = 0);

// Quantization (ops/quantize.cc, ops/dequant_matmul.cc, ops/qmatmul.cc)
struct QuantizeAttrs;
struct DequantizeAttrs;
Value quantize(Builder& b, Value x, QuantizeAttrs attrs);
Value dequantize(Builder& b, Value q, DequantizeAttrs attrs);
struct DequantMatMulAttrs;
// x times the transpose of the packed w.
Value dequant_matmul(Builder& b, Value x, Value w);
Value dequant_matmul(Builder& b, Value x, Value w, DequantMatMulAttrs attrs);
struct QMatMulAttrs;
Value qmatmul(Builder& b, Value x, Value w, Value bias, QMatMulAttrs attrs);  // bias may be absent

// Random (ops/rng.cc). Without a seed (u64, any leading axes) it is 0. Equal (seed, key) give equal
// draws.
Value rng_uniform(Builder& b, DType dtype, Shape shape, double low, double high, int64_t key,
                  Value seed = {});
Value rng_normal(Builder& b, DType dtype, Shape shape, double mean, double scale, int64_t key,
                 Value seed = {});

// Rows and networks
Value softmax(Builder& b, Value x, int64_t axis = -1);
Value softmax_cross_entropy(Builder& b, Value logits, Value labels);  // one loss per row
Value layer_norm(Builder& b, Value x, Value gamma, Value beta, int64_t axis = -1,
                 double eps = 1e-5);
struct ConvAttrs;
Value conv(Builder& b, Value x, Value w, ConvAttrs attrs);
struct AttentionAttrs;
// q [B, Sq, H, D], k [B, Sk, Hkv, D], v [B, Sk, Hkv, Dv]; with mask, bias, lengths or from packed
// operands: rlx/ops/attention.h.
Value attention(Builder& b, Value q, Value k, Value v, AttentionAttrs attrs);
struct LstmAttrs;
// y, h and c; with a first state or lengths: rlx/ops/lstm.h.
std::vector<Value> lstm(Builder& b, Value x, Value w_ih, Value w_hh, Value bias, LstmAttrs attrs);
struct PoolAttrs;
Value pool(Builder& b, Value x, PoolAttrs attrs);

// The gradient of broadcasting: sums g over the axes that broadcasting added or stretched.
Value unbroadcast(Builder& b, Value g, const Shape& shape);

}  // namespace rlx
