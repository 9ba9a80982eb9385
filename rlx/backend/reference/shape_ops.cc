#include "rlx/ops/shape_ops.h"

#include "rlx/backend/reference/storage.h"

namespace rlx::reference {
namespace {

void copy_in_order(const Call& call) {
  with_elements(call.operands[0], call.results[0], [](const auto& x, auto& y) { y = x; });
}

// y[index] = x[start + index . strides]
void copy_strided(const Call& call, int64_t start, const Dims& strides) {
  with_elements(call.operands[0], call.results[0], [&](const auto& x, auto& y) {
    for_each_index(stored_shape(call.results[0]), [&](int64_t flat, const Dims& index) {
      y[size_t(flat)] = x[size_t(start + offset_of(index, strides))];
    });
  });
}

void transpose(const Call& call) {
  const Dims own = dense_strides(stored_shape(call.operands[0]));
  Dims strides;
  for (const int64_t p : call.as<TransposeAttrs>().perm) strides.push_back(own[size_t(p)]);
  copy_strided(call, 0, strides);
}

void expand(const Call& call) {
  copy_strided(call, 0, broadcast_strides(call.operands[0], stored_shape(call.results[0])));
}

void narrow_axis(const Call& call) {
  const auto& a = call.as<NarrowAttrs>();
  const Dims strides = dense_strides(stored_shape(call.operands[0]));
  copy_strided(call, a.start.value() * strides[size_t(a.axis)], strides);
}

void concat(const Call& call) {
  const size_t axis = size_t(call.as<ConcatAttrs>().axis);
  const Dims strides = dense_strides(stored_shape(call.results[0]));
  int64_t start = 0;
  for (const Tensor& part : call.operands) {
    with_elements(part, call.results[0], [&](const auto& x, auto& y) {
      for_each_index(stored_shape(part), [&](int64_t flat, const Dims& index) {
        y[size_t(start * strides[axis] + offset_of(index, strides))] = x[size_t(flat)];
      });
    });
    start += part.shape[axis];
  }
}

}  // namespace

RLX_DEFINE_REFERENCE(Reshape) = copy_in_order;
RLX_DEFINE_REFERENCE(Copy) = copy_in_order;
RLX_DEFINE_REFERENCE(Transpose) = transpose;
RLX_DEFINE_REFERENCE(Expand) = expand;
RLX_DEFINE_REFERENCE(Narrow) = narrow_axis;
RLX_DEFINE_REFERENCE(Concat) = concat;

}  // namespace rlx::reference
