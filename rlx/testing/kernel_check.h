// The kernels of the CPU against the reference, through the whole compiler and runtime.
#pragma once

#include "rlx/testing/grad_check.h"

namespace rlx {

// One call: every entry that fits (forced by name) and the decomposition, operands contiguous,
// transposed, sliced and broadcast; on 1, 2 and 5 threads with equal bits; guard zones intact; text
// and binary round trips; the decomposition against the direct reference in float64.
CheckResult check_kernels(const OpDef& op, const Sample& sample);
CheckResult check_wrong_call(const OpDef& op, const WrongCall& wrong);

}  // namespace rlx
