// Sliding windows over the spatial axes of [N, C, spatial...]: the geometry that Conv and Pool
// share.
#pragma once

#include "rlx/base/shape.h"
#include "rlx/ir/builder.h"

namespace rlx {

inline constexpr int64_t kMaxSpatialRank = 3;

// One value per spatial axis; padding has 2r: what stands before each axis, then after each.
struct Window {
  Dims kernel, stride, padding, dilation;
  int64_t rank() const { return int64_t(kernel.size()); }
  int64_t before(int64_t i) const { return padding[size_t(i)]; }
  int64_t after(int64_t i) const { return padding[size_t(i + rank())]; }
  int64_t area() const { return num_elements(kernel); }
  // Cells from the first to the last of a window on axis i; checked.
  int64_t span(int64_t i) const;
};

// Attribute lists in normal form: an empty list gets `value` r times.
void default_list(std::vector<int64_t>& list, int64_t r, int64_t value);
// Padding in normal form: nothing is 0, r values count on both sides.
void default_padding(std::vector<int64_t>& padding, int64_t r);
// Spatial rank of a first operand [N, C, spatial...]; throws unless it is 1 to 3.
int64_t spatial_rank(const TensorType& x, std::string_view what);
// Padding beyond this is a mistake that would only cost memory.
inline constexpr int64_t kMostPadding = int64_t{1} << 20;
// Throws unless lists have r values, kernel, stride and dilation at least 1, padding 0 to
// kMostPadding.
void check_window(const Window& w, int64_t r);
// floor((size + before + after - dilation * (kernel - 1) - 1) / stride) + 1; throws if the window
// does not fit.
Dim window_count(const Dim& size, const Window& w, int64_t i);
// [N, channels, window counts...] over the spatial axes of x.
Shape window_result(const Shape& x, const Dim& channels, const Window& w);

// The cells of all windows: x [N, C, s1 ...] gives [N, C, o1, k1, o2, k2, ...], with `fill` outside
// of x. By Concat and Gather, so it works on symbolic sizes and has all derivatives.
Value windows(Builder& b, Value x, const Window& w, double fill);

// Splits axis `axis` into `sizes`, or joins `count` axes from `axis` on.
Value split_axis(Builder& b, Value x, int64_t axis, std::vector<Dim> sizes);
Value join_axes(Builder& b, Value x, int64_t axis, int64_t count);
// a / b; throws if b does not divide a.
Dim divide(const Dim& a, const Dim& b);

}  // namespace rlx
