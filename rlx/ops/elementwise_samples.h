// What the samples of the elementwise ops share.
#pragma once

#include <fmt/core.h>

#include <string>
#include <vector>

#include "rlx/ops/samples.h"

namespace rlx {

// The dtypes of a set, in the order of dtypes.def.
inline std::vector<DType> members(DTypeSet set) {
  std::vector<DType> list;
  for (int i = 0; i < kNumDTypes + kNumPackedDTypes; ++i) {
    if (set.contains(DType(i))) list.push_back(DType(i));
  }
  return list;
}

inline GradCheck grad_for(DType t) {
  return is_differentiable(t) ? GradCheck::kYes : GradCheck::kNo;
}

inline Draw uniform(double low, double high) { return {Draw::kUniform, low, high, {}}; }
inline Draw distinct(double low, double high) { return {Draw::kDistinct, low, high, {}}; }
inline Draw integers(double low, double high) { return {Draw::kInteger, low, high, {}}; }
inline Draw given(std::vector<double> values) { return {Draw::kGiven, 0, 0, std::move(values)}; }
inline Draw special(double low = -2, double high = 2) { return {Draw::kSpecial, low, high, {}}; }

struct SampleShapes {
  std::string_view name;
  std::vector<Dims> operands;
};

// Shapes of two operands that broadcast: every way to differ in rank and in sizes.
inline std::vector<SampleShapes> binary_shapes() {
  return {
      {"scalars", {{}, {}}},
      {"empty", {{0}, {0}}},
      {"empty_with_one", {{3, 0}, {1}}},
      {"ones", {{1, 1}, {1}}},
      {"prime", {{7, 13}, {7, 13}}},
      {"large", {{4099}, {4099}}},
      {"large_with_scalar", {{4099}, {}}},
      {"scalar_with_large", {{}, {4099}}},
      {"row", {{5, 17}, {17}}},
      {"column", {{5, 17}, {5, 1}}},
      {"column_first", {{5, 1}, {5, 17}}},
      {"outer", {{5, 1}, {1, 17}}},
      {"middle", {{3, 5, 7}, {3, 1, 7}}},
      {"middle_first", {{3, 1, 7}, {3, 5, 7}}},
      {"ends", {{1, 5, 1}, {3, 5, 7}}},
      {"alternating", {{2, 1, 3, 1}, {1, 4, 1, 5}}},
      {"rank_difference", {{2, 3, 4, 5}, {4, 1}}},
      {"long_rows", {{3, 1031}, {1, 1031}}},
      {"short_rows", {{257, 3}, {257, 1}}},
  };
}

}  // namespace rlx
