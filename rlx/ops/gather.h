#pragma once

#include "rlx/ir/field.h"

namespace rlx {

// Normalized: axis non-negative, batch_dims <= axis.
struct GatherAttrs {
  int64_t axis = 0;        // of the table
  int64_t batch_dims = 0;  // leading axes that table and indices share
  // Of the result, any float, where the table is packed (normalized: f32 if left out); else none.
  std::optional<DType> dtype{};
};

struct GatherBackwardAttrs {
  int64_t axis = 0;
  int64_t batch_dims = 0;
  Shape shape;  // of the table
};

}  // namespace rlx
