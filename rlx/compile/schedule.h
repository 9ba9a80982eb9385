// Schedule: the order of the steps, their segments, and the barriers between them.
#pragma once

#include "rlx/compile/draft.h"

namespace rlx {

// Steps estimated below this time are not shared between threads.
inline constexpr double kSerialNanoseconds = 2000;
// A serial segment grows by independent steps only up to this time: others may run beside it.
inline constexpr double kSegmentNanoseconds = 10000;

// Reorders the steps: first all that do not depend on an overwritten param, then those that write
// params and what depends on them, so that a run that fails or is cancelled before has changed no
// state. Within both parts: the order of the graph, or depth-first from outputs and updates,
// whichever keeps fewer bytes alive at its peak. Returns the number of steps in the first part.
uint32_t order_steps(Draft& draft);

// Cuts the final steps of the plan into segments and sets barriers between segments that touch the
// same bytes (read after write, write after read, write after write; in-place results and arena
// reuse count). `own_steps`: those that are not in bodies. `commit_step`: the first step of the
// part that writes params.
void make_segments(Plan& plan, uint32_t own_steps, uint32_t commit_step);

}  // namespace rlx
