// Layout: decides for every operand of every kernel call whether the kernel reads it where it lies
// or a copy.
#pragma once

#include "rlx/compile/draft.h"

namespace rlx {

// Views become descriptions; every other call becomes a step with results in buffers of their own.
//
// A view value is judged once, with all its consumers: strides that a kernel entry refuses (or a
// Reshape cannot express) force one Copy; otherwise the sum of the entries' stride costs is weighed
// against the estimate of that one Copy. Consumers that read the strides at no cost keep the view
// in either case. Small copies of constants are made here, once, instead of at run time.
Draft lay_out(const Graph& graph, const KernelTable& kernels, const CompileOptions& options);

// Producers whose value is used by one Concat only, and by it once, write straight into their place
// in its result. If all parts do, the Concat step vanishes; if some do, Copy steps place the rest.
void fill_concat_slots(Draft& draft, const KernelTable& kernels);

}  // namespace rlx
