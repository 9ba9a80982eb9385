#pragma once

#include "rlx/ir/field.h"

namespace rlx {

enum class ReduceKind : uint8_t { kSum, kMean, kMax, kMin, kProd, kAnd, kOr };

struct ReduceAttrs {
  ReduceKind kind = ReduceKind::kSum;
  std::vector<int64_t> axes;  // normalized: ascending, without duplicates; empty: identity
  bool keep_dims = false;
};

}  // namespace rlx

RLX_ENUM(rlx::ReduceKind, "Sum", "Mean", "Max", "Min", "Prod", "And", "Or");
