#pragma once

#include "rlx/ir/op.h"

namespace rlx {

// Bytes of all operands and results, each once.
inline double io_bytes(const CostContext& c) {
  double bytes = 0;
  for (const TensorType& t : c.operands) bytes += double(byte_size(t.dtype, t.shape.static_dims()));
  for (const TensorType& t : c.results) bytes += double(byte_size(t.dtype, t.shape.static_dims()));
  return bytes;
}

inline double element_count(const TensorType& t) { return double(t.shape.num_elements().value()); }

}  // namespace rlx
