#pragma once

#include "rlx/ir/field.h"

namespace rlx {

// Lists have one entry, or one for each column of w (normalized: zeros if left out).
struct QMatMulAttrs {
  int64_t x_zero_point = 0;
  std::vector<int64_t> w_zero_points{};
  int64_t out_zero_point = 0;
  std::vector<double> multipliers{};  // scale of x times scale of w over scale of the result
};

}  // namespace rlx
