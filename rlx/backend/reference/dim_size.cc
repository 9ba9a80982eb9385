#include "rlx/ops/dim_size.h"

#include "rlx/backend/reference/reference.h"

namespace rlx::reference {
namespace {

void dim_size(const Call& c) {
  c.results[0].i[0] = c.operands[0].shape[size_t(c.as<DimSizeAttrs>().axis)];
}

}  // namespace

RLX_DEFINE_REFERENCE(DimSize) = dim_size;

}  // namespace rlx::reference
