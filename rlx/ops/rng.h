#pragma once

#include "rlx/ir/field.h"

namespace rlx {

struct RngUniformAttrs {
  DType dtype = DType::kF32;
  Shape shape;
  double low = 0, high = 1;
  int64_t key = 0;  // 64 bits; calls with different keys are independent
};

struct RngNormalAttrs {
  DType dtype = DType::kF32;
  Shape shape;
  double mean = 0, scale = 1;
  int64_t key = 0;
};

}  // namespace rlx
