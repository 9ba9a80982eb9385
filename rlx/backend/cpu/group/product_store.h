// The commonest ends of a matrix product as single functions on a register tile that was just
// stored: no program is interpreted, and the tile is still in the first-level cache.
#pragma once

#include <cstdint>
#include <optional>

#include "rlx/ops/activation.h"

namespace rlx::cpu {

// result = activation(sums + bias) + residual on `rows` stretches of `columns` elements; sums lie
// sums_step apart, what has the shape of the result `step`. The bits are those of the calls one by
// one.
struct ProductStore {
  const float* sums = nullptr;  // may be the memory of `result` or `before`
  const float* bias = nullptr;  // of the first column
  const float* residual = nullptr;
  float* before = nullptr;  // gets sums + bias; null: nobody wants it
  float* result = nullptr;
  int64_t sums_step = 0, step = 0, rows = 0, columns = 0;
};
using ProductStoreFn = void (*)(const ProductStore&);

// For Relu, Gelu, GeluApprox or none. Without bias or residual the function does not read them.
ProductStoreFn product_store(std::optional<ActivationKind> activation, bool bias, bool residual);

}  // namespace rlx::cpu
