#include "rlx/ops/pool.h"

#include <cmath>
#include <limits>

#include "rlx/backend/reference/reference.h"

namespace rlx::reference {
namespace {

// Calls f(flat index of x) for the cells of the window at `out` that lie in x, in row-major order.
template <class F>
void for_each_cell(const Window& w, const Dims& x, const Dims& out, F&& f) {
  const Dims strides = dense_strides(x);
  for_each_index(w.kernel, [&](int64_t, const Dims& tap) {
    int64_t flat = out[0] * strides[0] + out[1] * strides[1];
    for (size_t i = 0; i < tap.size(); ++i) {
      const int64_t cell = out[2 + i] * w.stride[i] + tap[i] - w.padding[i];
      if (cell < 0 || cell >= x[2 + i]) return;
      flat += cell * strides[2 + i];
    }
    f(size_t(flat));
  });
}

// The first largest cell of a window, NaN being largest; -1 if it has none.
int64_t first_maximum(const Window& w, const Tensor& x, const Dims& out) {
  int64_t best = -1;
  for_each_cell(w, x.shape, out, [&](size_t cell) {
    if (best < 0 || x.f[cell] > x.f[size_t(best)] ||
        (std::isnan(x.f[cell]) && !std::isnan(x.f[size_t(best)]))) {
      best = int64_t(cell);
    }
  });
  return best;
}

double reduce_window(const PoolAttrs& a, const Window& w, const Tensor& x, const Dims& out) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double sum = 0, product = 1, largest = -kInfinity, smallest = kInfinity;
  int64_t count = 0;
  for_each_cell(w, x.shape, out, [&](size_t cell) {
    const double v = x.f[cell];
    ++count;
    sum += v;
    product *= v;
    if (v > largest || std::isnan(v)) largest = v;
    if (v < smallest || std::isnan(v)) smallest = v;
  });
  switch (a.kind) {
    case PoolKind::kMax:
      return largest;
    case PoolKind::kMin:
      return smallest;
    case PoolKind::kSum:
      return sum;
    case PoolKind::kProd:
      return product;
    case PoolKind::kMean:
      return sum / double(a.count_include_pad ? w.area() : std::max<int64_t>(count, 1));
  }
  return 0;
}

void run_pool(const Call& c) {
  const auto& a = c.as<PoolAttrs>();
  const Window w = pool_window(a);
  Tensor& y = c.results[0];
  for_each_index(y.shape, [&](int64_t flat, const Dims& out) {
    y.f[size_t(flat)] = reduce_window(a, w, c.operands[0], out);
  });
}

void run_select(const Call& c) {
  const Window w = pool_window(c.as<MaxPoolAttrs>());
  Tensor& y = c.results[0];
  for_each_index(y.shape, [&](int64_t flat, const Dims& out) {
    const int64_t cell = first_maximum(w, c.operands[0], out);
    if (cell >= 0) y.f[size_t(flat)] = c.operands[1].f[size_t(cell)];
  });
}

void run_backward(const Call& c) {
  const Window w = pool_window(c.as<MaxPoolAttrs>());
  const Tensor& dy = c.operands[1];
  for_each_index(dy.shape, [&](int64_t flat, const Dims& out) {
    const int64_t cell = first_maximum(w, c.operands[0], out);
    if (cell >= 0) c.results[0].f[size_t(cell)] += dy.f[size_t(flat)];
  });
}

}  // namespace

RLX_DEFINE_REFERENCE(Pool) = run_pool;
RLX_DEFINE_REFERENCE(MaxPoolSelect) = run_select;
RLX_DEFINE_REFERENCE(MaxPool2dBackward) = run_backward;

}  // namespace rlx::reference
