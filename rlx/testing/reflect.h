// What the samples of an op must exercise, derived from its attribute fields and its table row.
#pragma once

#include <string>
#include <vector>

#include "rlx/ops/samples.h"

namespace rlx {

// What is missing, one line each: enumeration values, bool values, dtypes of the row, accepted
// (enumeration value, dtype) pairs, sizes 0, 1, a prime and a large one. Empty if complete.
std::vector<std::string> missing_in_samples(const OpDef& op);

}  // namespace rlx
