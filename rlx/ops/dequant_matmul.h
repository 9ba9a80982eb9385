#pragma once

#include "rlx/ir/field.h"

namespace rlx {

// How the weight is stored. Packed: blocks that hold their scales, a packed dtype. Schemes with
// scales in tensors of their own have more operands.
enum class WeightScheme : uint8_t { kPacked };
// What the left operand takes part as: itself, or in blocks of q8_0 that are made of it.
enum class MatMulActivations : uint8_t { kExact, kInt8Block };

struct DequantMatMulAttrs {
  WeightScheme scheme = WeightScheme::kPacked;
  MatMulActivations activations = MatMulActivations::kExact;
};

}  // namespace rlx

RLX_ENUM(rlx::WeightScheme, "Packed");
RLX_ENUM(rlx::MatMulActivations, "Exact", "Int8Block");
