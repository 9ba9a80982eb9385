// Packed dtypes have no elements of their own, so most ops must refuse them.
#pragma once

#include <cstdint>

namespace rlx {

// Of OpDef::flags, above OpFlags: the op takes or gives packed dtypes. For all others (but control
// steps, which hand values on) infer_call refuses them before inference.
inline constexpr uint32_t kPackedRows = uint32_t(1) << 16;

}  // namespace rlx
