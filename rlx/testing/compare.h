// Comparing a kernel's result with the reference: tolerances from dtype and reduction length.
#pragma once

#include <string>

#include "rlx/backend/reference/reference.h"

namespace rlx {

struct Tolerance {
  int64_t reduction = 1;  // length of the longest sum behind an element
  double extra_ulps = 0;  // of the accumulation type: transcendental functions
  double scale = 0;       // magnitude of the sum's terms; 0: the largest result
};

// Empty if `got` is right: integers and bools exactly; floats to half an ulp of the storage type
// (one rounding of the exact value) plus what the tolerance grants; NaN where NaN, infinities with
// their sign. Otherwise says where and by how much.
std::string compare(const Array& got, const reference::Tensor& expected, const Tolerance& t);

// Wide against wide (both from the reference): relative to the largest element.
std::string compare_wide(const reference::Tensor& a, const reference::Tensor& b, double relative);

}  // namespace rlx
