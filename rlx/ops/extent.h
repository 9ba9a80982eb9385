// Sizes that are known only when a graph runs: their value, and the memory beyond them.
#pragma once

#include "rlx/ir/builder.h"

namespace rlx {

struct ExtentAttrs {
  Dim size;
};

enum class FillValue : uint8_t { kZero, kOne, kLowest, kHighest };

struct FillTailAttrs {
  int64_t axis = 0;  // normalized: non-negative
  FillValue fill = FillValue::kZero;
};

// The size as an i64 scalar.
Value extent(Builder& b, const Dim& size);
// x with the elements from position n (i64 []) on replaced along the axis.
Value fill_tail(Builder& b, Value x, Value n, int64_t axis, FillValue fill);
// The value in a dtype, as an array of one element.
Array fill_element(DType dtype, FillValue fill);

}  // namespace rlx

RLX_ENUM(rlx::FillValue, "Zero", "One", "Lowest", "Highest");
