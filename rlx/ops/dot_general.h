#pragma once

#include "rlx/ir/field.h"

namespace rlx {

// Entry i of the left list belongs to entry i of the right one; sizes are equal. Normalized: all
// axes non-negative.
struct DotGeneralAttrs {
  std::vector<int64_t> lhs_contracting, rhs_contracting;
  std::vector<int64_t> lhs_batch, rhs_batch;
};

}  // namespace rlx
