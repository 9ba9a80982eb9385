// Attributes of Quantize and Dequantize.
#pragma once

#include "rlx/ir/field.h"

namespace rlx {

enum class QuantizeRounding : uint8_t { kEven, kAway };

// Packed dtypes have their scales inside: scales, zero_points and axis are then left out.
struct QuantizeAttrs {
  DType dtype = DType::kI8;  // of the codes: i8, u8, i16, or packed
  std::optional<int64_t> axis{};
  std::vector<double> scales{};        // one, or one for each index of `axis`
  std::vector<int64_t> zero_points{};  // as many; normalized: zeros if left out
  QuantizeRounding rounding = QuantizeRounding::kEven;
};
struct DequantizeAttrs {
  DType dtype = DType::kF32;  // of the result: any float
  std::optional<int64_t> axis{};
  std::vector<double> scales{};
  std::vector<int64_t> zero_points{};
};

// Smallest and largest code.
struct CodeRange {
  int64_t low = 0, high = 0;
};
CodeRange code_range(DType t);

}  // namespace rlx

RLX_ENUM(rlx::QuantizeRounding, "Even", "Away");
