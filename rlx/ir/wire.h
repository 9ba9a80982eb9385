// Internal to rlx/ir: numbers of the binary format. Append only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rlx::wire {

inline constexpr std::string_view kMagic = "RLXGRAPH";
inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kHeader = 64;
inline constexpr size_t kAlignment = 64;  // of tensors

// Before every attribute value.
enum class Tag : uint8_t {
  kNone = 0,
  kBool = 1,
  kInt = 2,
  kDouble = 3,
  kString = 4,
  kDType = 5,
  kInts = 6,
  kDim = 7,
  kShape = 8,
  kArray = 9,
  kGraph = 10,
  kEnum = 11,
  kNullGraph = 12,
  kUndefinedArray = 13,
  kDoubles = 14,
  kTypes = 15,
};

}  // namespace rlx::wire
