#pragma once

#include "rlx/ir/builder.h"

namespace rlx {

// Of Sort and ArgSort. Normalized: axis non-negative.
struct SortAttrs {
  int64_t axis = -1;
  bool descending = false;
  bool stable = true;  // false allows what is stable too
  DType index_dtype = DType::kI64;
};

struct TopKAttrs {
  int64_t k = 1;
  int64_t axis = -1;
  bool largest = true;
  bool sorted = true;  // in order of value, else of position
  DType index_dtype = DType::kI64;
};

// {values, indices}.
std::vector<Value> sort(Builder& b, Value x, SortAttrs attrs = {});
std::vector<Value> top_k(Builder& b, Value x, TopKAttrs attrs);

// The elements of x at `indices` along an axis, where both have the same other axes.
Value take_along(Builder& b, Value x, Value indices, int64_t axis);

}  // namespace rlx
