// Rows of packed dtypes as what they are in memory, for kernels that move them.
#pragma once

#include "rlx/backend/cpu/kernels/strided_copy.h"
#include "rlx/compile/kernel.h"

namespace rlx::cpu {

// A copy of x into a view of its sizes with the strides `to`. Rows of packed dtypes are runs of
// 16-bit words: blocks begin with an f16.
inline StridedCopy copy_between(const TensorDesc& x, const Dims& to) {
  if (!is_packed(x.dtype)) return StridedCopy(size_of(x.dtype), x.dims, x.strides, to);
  if (x.num_elements() == 0) return StridedCopy(2, Dims{0}, Dims{1}, Dims{1});
  const auto words = [&](int64_t elements) { return bytes_of(x.dtype, elements) / 2; };
  Dims dims = x.dims, from_strides, to_strides;
  dims.back() = words(dims.back());
  for (size_t a = 0; a + 1 < dims.size(); ++a) {
    const bool moves = dims[a] > 1;  // else its stride may be anything
    from_strides.push_back(moves ? words(x.strides[a]) : 0);
    to_strides.push_back(moves ? words(to[a]) : 0);
  }
  from_strides.push_back(1);
  to_strides.push_back(1);
  return StridedCopy(2, dims, from_strides, to_strides);
}

}  // namespace rlx::cpu
