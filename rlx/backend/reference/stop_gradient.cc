#include "rlx/backend/reference/reference.h"

namespace rlx::reference {

RLX_DEFINE_REFERENCE(StopGradient) = [](const Call& call) { call.results[0] = call.operands[0]; };

}  // namespace rlx::reference
