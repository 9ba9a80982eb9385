// Windows whose place is known when a graph runs.
#pragma once

#include "rlx/ir/builder.h"

namespace rlx {

// Normalized: axes ascending, not negative, behind the batch axes.
struct DynamicSliceAttrs {
  std::vector<int64_t> axes{};  // that the starts belong to; empty: all behind the batch axes
  Shape sizes{};                // of the window on these axes
  int64_t batch_dims = 0;       // leading axes with starts of their own
};

struct DynamicUpdateSliceAttrs {
  std::vector<int64_t> axes{};
  int64_t batch_dims = 0;
};

// starts: i64, x.shape[:batch_dims] + [number of axes]; a scalar does for one axis.
Value dynamic_slice(Builder& b, Value x, Value starts, DynamicSliceAttrs attrs);
Value dynamic_update_slice(Builder& b, Value target, Value update, Value starts,
                           DynamicUpdateSliceAttrs attrs);

}  // namespace rlx
