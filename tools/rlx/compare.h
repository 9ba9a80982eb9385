// How two arrays of one dtype differ, in numbers.
#pragma once

#include <cstdint>
#include <string>

#include "rlx/base/array.h"

namespace rlx::cli {

struct Difference {
  int64_t elements = 0;
  int64_t different = 0;  // NaN equals NaN, -0 equals 0
  bool beyond = false;    // of what was allowed
  Dims other;             // the shape of b, if it is another (sizes that a run sets itself)
  // Where |a - b| is largest (a NaN against a number counts as infinite).
  int64_t worst = 0;
  double a = 0, b = 0;
  double absolute = 0;
  double relative = 0;  // |a - b| / max(|a|, |b|)
  double ulps = 0;      // representable numbers between the two; 0 for integers
  // "3 of 6 elements differ, most at [0, 1]: 0.5 against 0.75 (absolute 0.25, ...)", or "the other
  // one has the shape [2]"
  std::string to_string(const Dims& shape) const;
};

// Floats may differ by `ulps` units in the last place of the largest finite |a|; integers and bools
// not at all, and neither may shapes.
Difference compare(const Array& a, const Array& b, double ulps);

}  // namespace rlx::cli
