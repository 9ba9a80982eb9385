// Counts memory taken by new in this process, for tests that a run allocates nothing.
#pragma once

#include <cstdint>

namespace rlx {

// Calls of operator new so far, of all threads. allocation_counter_test.cc replaces the operator.
int64_t allocation_count();

}  // namespace rlx
