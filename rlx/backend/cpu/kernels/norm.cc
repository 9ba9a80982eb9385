#include "rlx/backend/cpu/kernels/norm.h"

#include <algorithm>

#include "rlx/backend/cpu/kernels/partial_rows.h"
#include "rlx/base/checked.h"
#include "rlx/ops/norm.h"

namespace rlx::cpu {
namespace {

constexpr int64_t kChunkElements = 16384;

NormState state_of(const KernelCall& call) {
  const TensorDesc& x = call.operands[0];
  const auto& a = call.as<NormAttrs>();
  NormState s;
  s.dtype = x.dtype;
  s.eps = a.eps;
  for (int64_t axis = 0; axis < int64_t(x.dims.size()); ++axis) {
    (axis < a.batch_axes ? s.groups : axis < a.axis ? s.rows : s.n) *= x.dims[size_t(axis)];
  }
  return s;
}

}  // namespace

PreparedKernel prepare_norm(const KernelCall& call, const NormRuns& runs) {
  NormState s = state_of(call);
  s.gamma = call.operands.size() > 1;
  s.beta = call.operands.size() > 2;
  s.per_chunk = std::max<int64_t>(1, kChunkElements / std::max<int64_t>(s.n, 1));
  const int64_t chunks = s.n == 0 ? 0 : ceil_div(s.all_rows(), s.per_chunk);
  return PreparedKernel::single(s, chunks, runs.forward,
                                double(s.all_rows()) * (30 + 0.4 * double(s.n)));
}

// Phase 1: a chunk has the rows r, r + 64, ... of a group: their partial sums and dx. Phase 2: the
// sum of the partial sums, by blocks of columns.
PreparedKernel prepare_norm_backward(const KernelCall& call, const NormRuns& runs) {
  NormState s = state_of(call);
  s.gamma = call.operands.size() > 2;
  s.dx = call.used(0);
  s.dgamma = call.used(1);
  s.dbeta = call.used(2);
  s.partials = s.n == 0 ? 0 : std::min(s.rows, kPartialRows);
  PreparedKernel k = PreparedKernel::single(s, checked_mul(s.groups, s.partials), runs.backward,
                                            double(s.all_rows()) * (60 + 0.9 * double(s.n)));
  if (s.sums()) {
    k.phases.push_back({checked_mul(s.groups, ceil_div(s.n, kPartialColumns)), runs.add_partials});
    const int64_t row_bytes = checked_mul(2 * s.n, s.dtype == DType::kF64 ? 8 : 4);
    k.scratch_bytes = checked_mul(checked_mul(s.groups, s.partials), row_bytes);
  }
  return k;
}

}  // namespace rlx::cpu
