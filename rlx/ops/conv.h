#pragma once

#include "rlx/ir/field.h"
#include "rlx/ops/window.h"

namespace rlx {

// Of Conv and Conv3d; r is the number of spatial axes.
struct ConvAttrs {
  std::vector<int64_t> stride{};    // r values; empty: 1
  std::vector<int64_t> padding{};   // r values (both sides), or 2r: before each axis, then after
  std::vector<int64_t> dilation{};  // r values; empty: 1
  Dim groups = 1;                   // a Dim, because batching multiplies it by a batch size
};

// Of Conv2dBackwardInput and Conv2dBackwardWeight: the geometry of the forward call, and the shape
// of the operand whose gradient is computed.
struct ConvBackwardAttrs {
  std::vector<int64_t> stride{};
  std::vector<int64_t> padding{};
  std::vector<int64_t> dilation{};
  Dim groups = 1;
  Shape shape{};
};

ConvAttrs forward_attrs(const ConvBackwardAttrs& a);
Window conv_window(const ConvAttrs& a, Dims kernel);
// Sizes of the spatial axes of a weight [Co, Ci / groups, kernel...]; throws if symbolic or
// below 1.
Dims kernel_of(const Shape& weight);
// The geometry in normal form for r spatial axes.
template <class S>
void normalize_conv(S& a, int64_t r) {
  if (r < 1) return;  // infer says which rank is wanted
  default_list(a.stride, r, 1);
  default_list(a.dilation, r, 1);
  default_padding(a.padding, r);
}
// [N, Co, spatial...] of Conv(x, w) with normalized attributes; throws on mismatching operands.
Shape conv_shape(const TensorType& x, const TensorType& w, const ConvAttrs& a);
// Multiply-adds count two flops each.
double conv_flops(const Shape& w, const Shape& y);

// The patches of x under a weight: [N, groups, Ci / groups * kernel area, output area].
Value conv_patches(Builder& b, Value x, const Window& w, const Dim& groups);

// Gradients of conv(b, x, w, attrs); `shape` is that of x and of w.
Value conv_backward_input(Builder& b, Value dy, Value w, const ConvAttrs& attrs, Shape shape);
Value conv_backward_weight(Builder& b, Value x, Value dy, const ConvAttrs& attrs, Shape shape);

// Batching with batch size 0: zeros of the results' shapes.
std::vector<Value> empty_batch(Builder& b, const RuleCall& call, std::span<const uint8_t> batched);

}  // namespace rlx
