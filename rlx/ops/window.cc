#include "rlx/ops/window.h"

#include "rlx/base/checked.h"
#include "rlx/ops/build.h"

namespace rlx {
namespace {

void check_list(const Dims& list, int64_t expected, int64_t least, std::string_view what) {
  if (int64_t(list.size()) != expected) {
    user_error("{} has {} values, expected {}", what, list.size(), expected);
  }
  for (int64_t v : list) {
    if (v < least) user_error("{} has the value {}, expected at least {}", what, v, least);
  }
}

// Cells [count, kernel] of the windows along one axis.
Value window_indices(Builder& b, const Dim& count, int64_t kernel, int64_t stride,
                     int64_t dilation) {
  const Shape shape{count, Dim(kernel)};
  const Value starts = mul(b, iota(b, DType::kI64, shape, 0), double(stride));
  return add(b, starts, mul(b, iota(b, DType::kI64, shape, 1), double(dilation)));
}

}  // namespace

int64_t Window::span(int64_t i) const {
  return checked_add(checked_mul(dilation[size_t(i)], kernel[size_t(i)] - 1), 1);
}

void default_list(std::vector<int64_t>& list, int64_t r, int64_t value) {
  if (list.empty()) list.assign(size_t(r), value);
}

void default_padding(std::vector<int64_t>& padding, int64_t r) {
  if (padding.empty()) padding.assign(size_t(2 * r), 0);
  if (int64_t(padding.size()) == r) padding.insert(padding.end(), padding.begin(), padding.end());
}

int64_t spatial_rank(const TensorType& x, std::string_view what) {
  const int64_t r = x.shape.rank() - 2;
  if (r < 1 || r > kMaxSpatialRank) {
    user_error("{} must be [N, C, spatial...] with 1 to 3 spatial axes, it is {}", what,
               x.to_string());
  }
  return r;
}

void check_window(const Window& w, int64_t r) {
  check_list(w.kernel, r, 1, "kernel_size");
  check_list(w.stride, r, 1, "stride");
  check_list(w.dilation, r, 1, "dilation");
  check_list(w.padding, 2 * r, 0, "padding");
  for (int64_t v : w.padding) {
    if (v > kMostPadding) {
      user_error("padding has the value {}, expected at most {}", v, kMostPadding);
    }
  }
}

Dim window_count(const Dim& size, const Window& w, int64_t i) {
  const Dim padded = size + Dim(w.before(i)) + Dim(w.after(i));
  const int64_t span = w.span(i);
  if (padded.is_static() && padded.value() < span) {
    user_error("a window that spans {} cells does not fit spatial axis {} of padded size {}", span,
               i, padded.value());
  }
  return floor_div(padded - Dim(span), w.stride[size_t(i)]) + Dim(1);
}

Shape window_result(const Shape& x, const Dim& channels, const Window& w) {
  Shape result{x[0], channels};
  for (int64_t i = 0; i < w.rank(); ++i) result.push_back(window_count(x[2 + i], w, i));
  return result;
}

Value windows(Builder& b, Value x, const Window& w, double fill) {
  for (int64_t i = 0; i < w.rank(); ++i) {
    const int64_t axis = 2 + 2 * i;
    const Dim count = window_count(b.shape(x)[axis], w, i);
    x = pad_axis(b, x, axis, w.before(i), w.after(i), fill);
    if (w.kernel[size_t(i)] == 1 && w.stride[size_t(i)] == 1) {
      x = unsqueeze(b, x, axis + 1);
    } else {
      const Value cells =
          window_indices(b, count, w.kernel[size_t(i)], w.stride[size_t(i)], w.dilation[size_t(i)]);
      x = gather(b, x, cells, axis);
    }
  }
  return x;
}

Value split_axis(Builder& b, Value x, int64_t axis, std::vector<Dim> sizes) {
  Shape shape = b.shape(x);
  shape.erase(axis);
  for (Dim& d : sizes) shape.insert(axis++, std::move(d));
  return reshape(b, x, std::move(shape));
}

Value join_axes(Builder& b, Value x, int64_t axis, int64_t count) {
  Shape shape = b.shape(x);
  for (int64_t i = 1; i < count; ++i) {
    shape[axis] = shape[axis] * shape[axis + 1];
    shape.erase(axis + 1);
  }
  return reshape(b, x, shape);
}

Dim divide(const Dim& a, const Dim& b) {
  const auto q = exact_div(a, b);
  if (!q) user_error("{} is not a multiple of {}", a.to_string(), b.to_string());
  return *q;
}

}  // namespace rlx
