#include "rlx/backend/reference/elementwise.h"

namespace rlx::reference {
namespace {

void where(const Call& call) {
  const Tensor& condition = call.operands[0];
  Tensor& z = call.results[0];
  for_each_broadcast(call, [&](size_t k, const std::vector<size_t>& at) {
    const size_t chosen = condition.i[at[0]] != 0 ? 1 : 2;
    const Tensor& from = call.operands[chosen];
    if (!z.f.empty()) z.f[k] = from.f[at[chosen]];
    if (!z.i.empty()) z.i[k] = from.i[at[chosen]];
    if (!z.c.empty()) z.c[k] = from.c[at[chosen]];
  });
}

}  // namespace

RLX_DEFINE_REFERENCE(Where) = where;

}  // namespace rlx::reference
