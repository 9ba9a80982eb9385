#pragma once

#include "rlx/ir/field.h"

namespace rlx {

// Of SoftmaxCrossEntropyWithLogits and SoftmaxCrossEntropyBackward.
struct CrossEntropyAttrs {
  std::optional<int64_t> ignore_index;  // rows with this label have loss and gradient 0
};

}  // namespace rlx
