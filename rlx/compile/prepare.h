// Binds every step to its kernel: final strides, unused results, frozen operands, packed weights.
#pragma once

#include "rlx/compile/draft.h"

namespace rlx {

// Fills DraftStep::kernel. Packed constants become constants of the plan; packed params are listed
// in Plan::packed, for the weight store to make.
void prepare_steps(Draft& draft, const KernelTable& kernels, const CompileOptions& options);

}  // namespace rlx
