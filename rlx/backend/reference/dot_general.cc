#include "rlx/ops/dot_general.h"

#include <algorithm>

#include "rlx/backend/reference/storage.h"

namespace rlx::reference {
namespace {

using Axes = std::vector<int64_t>;

Dims free_axes(const Tensor& t, const Axes& contracting, const Axes& batch) {
  Dims free;
  for (int64_t a = 0; a < int64_t(t.shape.size()); ++a) {
    if (std::find(contracting.begin(), contracting.end(), a) == contracting.end() &&
        std::find(batch.begin(), batch.end(), a) == batch.end()) {
      free.push_back(a);
    }
  }
  return free;
}

Dims pick(const Dims& values, const Axes& axes) {
  Dims picked;
  for (const int64_t a : axes) picked.push_back(values[size_t(a)]);
  return picked;
}

void dot_general(const Call& call) {
  const auto& a = call.as<DotGeneralAttrs>();
  const Tensor &x = call.operands[0], &y = call.operands[1];
  const Dims xs = dense_strides(x.shape), ys = dense_strides(y.shape);
  const Dims x_free = free_axes(x, a.lhs_contracting, a.lhs_batch);
  const Dims y_free = free_axes(y, a.rhs_contracting, a.rhs_batch);
  // Strides of both operands along the axes of the result: batch, free of x, free of y.
  Dims x_out = pick(xs, a.lhs_batch), y_out = pick(ys, a.rhs_batch);
  for (const int64_t axis : x_free) {
    x_out.push_back(xs[size_t(axis)]);
    y_out.push_back(0);
  }
  for (const int64_t axis : y_free) {
    x_out.push_back(0);
    y_out.push_back(ys[size_t(axis)]);
  }
  const Dims sizes = pick(x.shape, a.lhs_contracting);
  const Dims x_in = pick(xs, a.lhs_contracting), y_in = pick(ys, a.rhs_contracting);
  with_numbers(x, y, call.results[0], [&](const auto* px, const auto* py, auto* out) {
    for_each_index(call.results[0].shape, [&](int64_t flat, const Dims& index) {
      const int64_t ox = offset_of(index, x_out), oy = offset_of(index, y_out);
      for_each_index(sizes, [&](int64_t, const Dims& c) {
        out[flat] += px[ox + offset_of(c, x_in)] * py[oy + offset_of(c, y_in)];
      });
    });
  });
}

}  // namespace

RLX_DEFINE_REFERENCE(DotGeneral) = dot_general;

}  // namespace rlx::reference
