#pragma once

#include "rlx/ir/field.h"
#include "rlx/ops/window.h"

namespace rlx {

enum class PoolKind : uint8_t { kMax, kMean, kSum, kMin, kProd };

struct PoolAttrs {
  PoolKind kind = PoolKind::kMax;
  std::vector<int64_t> kernel_size{};  // r values, one per spatial axis
  std::vector<int64_t> stride{};       // r values; empty: kernel_size
  std::vector<int64_t> padding{};      // r values (both sides), or 2r: before each axis, then after
  bool count_include_pad = true;       // Mean only: divide by the kernel area, or by the cells of x
};

// Of MaxPoolSelect and MaxPool2dBackward: the geometry of the forward call.
struct MaxPoolAttrs {
  std::vector<int64_t> kernel_size{};
  std::vector<int64_t> stride{};
  std::vector<int64_t> padding{};
};

Window pool_window(const PoolAttrs& a);
Window pool_window(const MaxPoolAttrs& a);

// Result [N, C, o...]: t at the place of the first maximum of each window of x.
Value max_pool_select(Builder& b, Value x, Value t, const MaxPoolAttrs& attrs);
// Result of the type of x: dy of each window added at the place of its first maximum.
Value max_pool_backward(Builder& b, Value x, Value dy, const MaxPoolAttrs& attrs);

}  // namespace rlx

RLX_ENUM(rlx::PoolKind, "Max", "Mean", "Sum", "Min", "Prod");
