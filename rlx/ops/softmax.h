#pragma once

#include "rlx/ir/field.h"

namespace rlx {

struct SoftmaxAttrs {
  int64_t axis = -1;
};

}  // namespace rlx
