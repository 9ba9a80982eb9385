// What the readers of graphs refuse, whether text or binary: untrusted files must not exhaust the
// stack or memory.
#pragma once

#include <cstdint>

namespace rlx::limits {

inline constexpr int kMaxDepth = 32;  // of nested graphs
inline constexpr int64_t kMaxNodes = 10'000'000;
inline constexpr int64_t kMaxTensorBytes = int64_t(1) << 31;

}  // namespace rlx::limits
