#pragma once

#include "rlx/ir/field.h"

namespace rlx {

struct CastAttrs {
  DType to = DType::kF32;
};

}  // namespace rlx
