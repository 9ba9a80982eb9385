#pragma once

#include <cstdint>
#include <vector>

#include "rlx/ir/field.h"

namespace rlx {

struct TransformRegionAttrs {
  // What each step doubles: operand k for k below their number, then the result of step 0, 1, ...
  std::vector<int64_t> steps;
};

}  // namespace rlx
