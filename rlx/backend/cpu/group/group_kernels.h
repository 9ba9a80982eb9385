// The kernels of Group, by kind of root.
#pragma once

#include <string_view>

#include "rlx/compile/kernel.h"

namespace rlx::cpu {

// MatMul, DotGeneral and Conv: what comes after the root runs on finished pieces of the product
// while they are in the cache.
std::string_view fits_group_product(const KernelCall& call, const OpDef& root_op);
PreparedKernel prepare_group_product(const KernelCall& call);

// Softmax, LayerNorm, RmsNorm and Reduce over the last axes: some rows at a time go through all of
// the group within the cache. `direct` operands of the root are the first of the group.
std::string_view fits_group_rows(const KernelCall& call, size_t direct);
PreparedKernel prepare_group_rows(const KernelCall& call);

}  // namespace rlx::cpu
