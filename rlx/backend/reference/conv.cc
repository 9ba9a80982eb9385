#include "rlx/ops/conv.h"

#include "rlx/backend/reference/reference.h"

namespace rlx::reference {
namespace {

// Calls f(flat index of y, of x, of w) for every product of the convolution that reads a cell
// inside of x, in ascending order of y, then input channel, then kernel cell.
template <class F>
void for_each_product(const ConvAttrs& a, const Dims& x, const Dims& w, const Dims& y, F&& f) {
  const size_t r = x.size() - 2;
  const int64_t outputs_per_group = w[0] / a.groups.value();
  const Dims x_strides = dense_strides(x), w_strides = dense_strides(w);
  const Dims taps(w.begin() + 1, w.end());
  for_each_index(y, [&](int64_t y_flat, const Dims& out) {
    const int64_t group = out[1] / outputs_per_group;
    for_each_index(taps, [&](int64_t, const Dims& tap) {
      int64_t x_flat = out[0] * x_strides[0] + (group * w[1] + tap[0]) * x_strides[1];
      int64_t w_flat = out[1] * w_strides[0] + tap[0] * w_strides[1];
      for (size_t i = 0; i < r; ++i) {
        const int64_t cell = out[2 + i] * a.stride[i] + tap[1 + i] * a.dilation[i] - a.padding[i];
        if (cell < 0 || cell >= x[2 + i]) return;
        x_flat += cell * x_strides[2 + i];
        w_flat += tap[1 + i] * w_strides[2 + i];
      }
      f(size_t(y_flat), size_t(x_flat), size_t(w_flat));
    });
  });
}

void run_conv(const Call& c) {
  const Tensor &x = c.operands[0], &w = c.operands[1];
  Tensor& y = c.results[0];
  for_each_product(c.as<ConvAttrs>(), x.shape, w.shape, y.shape,
                   [&](size_t iy, size_t ix, size_t iw) { y.f[iy] += x.f[ix] * w.f[iw]; });
}

void run_input(const Call& c) {
  const Tensor &dy = c.operands[0], &w = c.operands[1];
  Tensor& dx = c.results[0];
  for_each_product(forward_attrs(c.as<ConvBackwardAttrs>()), dx.shape, w.shape, dy.shape,
                   [&](size_t iy, size_t ix, size_t iw) { dx.f[ix] += dy.f[iy] * w.f[iw]; });
}

void run_weight(const Call& c) {
  const Tensor &x = c.operands[0], &dy = c.operands[1];
  Tensor& dw = c.results[0];
  for_each_product(forward_attrs(c.as<ConvBackwardAttrs>()), x.shape, dw.shape, dy.shape,
                   [&](size_t iy, size_t ix, size_t iw) { dw.f[iw] += dy.f[iy] * x.f[ix]; });
}

}  // namespace

RLX_DEFINE_REFERENCE(Conv) = run_conv;
RLX_DEFINE_REFERENCE(Conv2dBackwardInput) = run_input;
RLX_DEFINE_REFERENCE(Conv2dBackwardWeight) = run_weight;

}  // namespace rlx::reference
