// Packed dtypes in the reference: bytes of blocks from and to numbers.
#pragma once

#include <vector>

#include "rlx/backend/reference/reference.h"
#include "rlx/base/packed_blocks.h"

namespace rlx::reference {

std::vector<float> decoded(const Tensor& packed);
// The blocks of `to`, which has its dtype and shape.
void encode(const std::vector<float>& values, Tensor& to);

}  // namespace rlx::reference
