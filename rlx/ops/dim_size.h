#pragma once

#include "rlx/ir/builder.h"

namespace rlx {

struct DimSizeAttrs {
  int64_t axis = 0;
};

Value dim_size(Builder& b, Value x, int64_t axis);  // i64 scalar

}  // namespace rlx
