#pragma once

#include "rlx/ir/builder.h"

namespace rlx {

// Which components form a pair: i and i + n_rot / 2, or 2i and 2i + 1.
enum class RopeStyle : uint8_t { kNeoX, kGptJ };

// [..., S, H, D], [..., H, S, D], or [..., S, H * D].
enum class RopeLayout : uint8_t { kBSHD, kBHSD, kPacked };

// Normalized: all sizes are given.
struct RopeAttrs {
  int64_t head_dim = 0;  // D; 0: the last axis (not for kPacked)
  int64_t n_rot = 0;     // components that turn; 0: head_dim
  RopeStyle style = RopeStyle::kNeoX;
  RopeLayout layout = RopeLayout::kBSHD;
};

// The sizes of a call, from operands x, cos, sin [, position_ids] of normalized attributes.
struct RopeSizes {
  int64_t lead = 0;        // axes of x before S, H, D
  Dim tokens, heads;       // S, H
  Dim rows, width;         // of a table [P, W]
  bool positions = false;  // there are position_ids
};
RopeSizes rope_sizes(const RopeAttrs& a, std::span<const TensorType> operands);

// position_ids may be left out.
Value rope(Builder& b, Value x, Value cos, Value sin, RopeAttrs attrs = {},
           Value position_ids = {});

}  // namespace rlx

RLX_ENUM(rlx::RopeStyle, "NeoX", "GptJ");
RLX_ENUM(rlx::RopeLayout, "BSHD", "BHSD", "Packed");
