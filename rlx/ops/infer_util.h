// Checks that inference functions share. All throw Error(kUser).
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "rlx/base/error.h"
#include "rlx/ir/op.h"

namespace rlx {

void expect_operands(const InferContext& c, size_t count);
void expect_operands(const InferContext& c, size_t least, size_t most);
// Operand i has a dtype of the set; `what` names the operand ("x", "indices").
void expect_dtype(const InferContext& c, size_t i, DTypeSet allowed, std::string_view what);
void expect_same_dtype(const InferContext& c, size_t i, size_t j);
void expect_same_type(const InferContext& c, size_t i, size_t j);
void expect_rank(const InferContext& c, size_t i, int64_t rank, std::string_view what);
void expect_min_rank(const InferContext& c, size_t i, int64_t rank, std::string_view what);
// A Normalize function for attribute structs S with one `int64_t axis` that refers to operand 0.
template <class S>
Attrs normalize_axis_of_first(const InferContext& c) {
  if (c.operands.empty()) return c.attrs;  // infer says what is missing
  const int64_t axis = normalize_axis(c.as<S>().axis, c.operands[0].shape.rank());
  if (axis == c.as<S>().axis) return c.attrs;
  S changed = c.as<S>();
  changed.axis = axis;
  return Attrs::of(c.attrs.table(), std::move(changed));
}

// Ops that move rows of packed dtypes leave the last axis as it is.
void expect_same_last_axis(const InferContext& c, const Shape& result);

// Common inference functions.
std::vector<TensorType> infer_same_as_first(const InferContext& c);

}  // namespace rlx
