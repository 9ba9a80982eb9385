#include <cmath>

#include "rlx/backend/reference/elementwise.h"

namespace rlx::reference {
namespace {

void fma(const Call& call) {
  const Tensor &x = call.operands[0], &y = call.operands[1], &z = call.operands[2];
  Tensor& w = call.results[0];
  for_each_broadcast(call, [&](size_t k, const std::vector<size_t>& at) {
    if (w.is_float()) {
      w.f[k] = std::fma(x.f[at[0]], y.f[at[1]], z.f[at[2]]);
    } else {
      w.i[k] = int64_t(uint64_t(x.i[at[0]]) * uint64_t(y.i[at[1]]) + uint64_t(z.i[at[2]]));
    }
  });
}

}  // namespace

RLX_DEFINE_REFERENCE(Fma) = fma;

}  // namespace rlx::reference
