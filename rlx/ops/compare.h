#pragma once

#include "rlx/ir/field.h"

namespace rlx {

enum class CompareKind : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe };

struct CompareAttrs {
  CompareKind kind = CompareKind::kEq;
};

}  // namespace rlx

RLX_ENUM(rlx::CompareKind, "Eq", "Ne", "Lt", "Le", "Gt", "Ge");
