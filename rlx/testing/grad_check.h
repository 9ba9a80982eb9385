// Derivatives and batching of one call, all evaluated by the float64 reference.
#pragma once

#include <string>
#include <vector>

#include "rlx/ops/samples.h"

namespace rlx {

struct CheckResult {
  std::vector<std::string> failures;  // "jvp against differences: at [0]: ..."
  int checks = 0;                     // how many comparisons were made
};

// jvp against central differences; vjp against jvp by inner products; second order (jvp of vjp
// against differences, vjp of vjp against it); the rules of the op and those of its decomposition
// give the same gradient.
CheckResult check_derivatives(const OpDef& op, const Sample& sample);
// vmap over every single operand and over all, against a loop; vmap of vjp and vjp of vmap too;
// batch size 0 has the right types.
CheckResult check_batching(const OpDef& op, const Sample& sample);

}  // namespace rlx
