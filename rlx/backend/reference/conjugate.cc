#include "rlx/backend/reference/reference.h"

namespace rlx::reference {

RLX_DEFINE_REFERENCE(Conjugate) = [](const Call& call) {
  call.results[0] = call.operands[0];
  for (auto& v : call.results[0].c) v = std::conj(v);
};

}  // namespace rlx::reference
