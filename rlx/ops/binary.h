#pragma once

#include "rlx/ir/field.h"

namespace rlx {

enum class BinaryKind : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMax,
  kMin,
  kPow,
  kMod,
  kBitAnd,
  kBitOr,
  kBitXor,
  kShl,
  kShr,
  kAtan2,
};

struct BinaryAttrs {
  BinaryKind kind = BinaryKind::kAdd;
};

}  // namespace rlx

RLX_ENUM(rlx::BinaryKind, "Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Mod", "BitAnd", "BitOr",
         "BitXor", "Shl", "Shr", "Atan2");
