#include "rlx/backend/reference/reference.h"

namespace rlx::reference {
namespace {

void bind_size(const Call& call) { call.results[0].i[0] = call.operands[0].i[0]; }

}  // namespace

RLX_DEFINE_REFERENCE(BindSize) = bind_size;

}  // namespace rlx::reference
