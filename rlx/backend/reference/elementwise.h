// Walking elementwise calls in the reference: every operand is read through broadcast strides.
#pragma once

#include <vector>

#include "rlx/backend/reference/reference.h"

namespace rlx::reference {

// Calls f(flat index of the result, offsets of the operands) for every result element.
template <class F>
void for_each_broadcast(const Call& call, F&& f) {
  const Dims& shape = call.results[0].shape;
  std::vector<Dims> strides;
  for (const Tensor& t : call.operands) strides.push_back(broadcast_strides(t, shape));
  std::vector<size_t> at(strides.size());
  for_each_index(shape, [&](int64_t flat, const Dims& index) {
    for (size_t i = 0; i < at.size(); ++i) at[i] = size_t(offset_of(index, strides[i]));
    f(size_t(flat), at);
  });
}

}  // namespace rlx::reference
