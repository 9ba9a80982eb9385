// DotGeneral whose contracted axes are not one in memory.
#pragma once

#include "rlx/compile/kernel.h"

namespace rlx::cpu {

// Copies both operands into scratch as [batch, rows, inner] and [batch, inner, columns], and
// prepares the product of those with `product`, which describes a DotGeneral of dense operands.
PreparedKernel prepare_rearranged(const KernelCall& call,
                                  PreparedKernel (*product)(const KernelCall& call));

}  // namespace rlx::cpu
