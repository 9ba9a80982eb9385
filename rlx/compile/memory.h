// Memory plan: results that take over an operand's memory, and the places of all buffers in the
// arena.
#pragma once

#include "rlx/compile/draft.h"

namespace rlx {

// Lets result 0 of a step use the memory of an operand, where the entry allows it, the layouts are
// equal, the operand lives in the arena and the step is its last reader.
void share_in_place(Draft& draft);

// Places the buffers and scratch, and turns the draft into the final plan's storages and steps. The
// largest goes first, each into the tightest gap among those alive at the same time; plans with too
// many of them alive together are placed step by step, in about linear time.
void place_buffers(Draft& draft, bool guard_zones);

inline constexpr int64_t kAlignment = 64;

// Whether the memory is aligned to its elements, as kernels need it. Borrowed memory may not be.
bool is_aligned(const Array& array);

}  // namespace rlx
