// Binding: which results are computed directly in the memory of outputs and params.
#pragma once

#include "rlx/compile/draft.h"

namespace rlx {

// A graph output whose value is a whole result of a step is computed in the output's memory; views,
// inputs, params, constants and values that are already another output are copied there.
// `direct` false: everything is computed in the arena and copied (for guard zones).
void bind_outputs(Draft& draft, const KernelTable& kernels, bool direct = true);

// A param's new value is computed in its memory if its producer can run after all readers of the
// old value; else it is computed elsewhere and copied at the end. Fills Draft::order.
void bind_updates(Draft& draft, const KernelTable& kernels, bool direct = true);

}  // namespace rlx
