#include "rlx/ir/leaf.h"

#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"
#include "rlx/ops/shape_ops.h"

namespace rlx::reference {
namespace {

[[noreturn]] void unbound(const Call& call) {
  internal_error("{} has no value of its own: the evaluator binds it", call.op.name);
}

void constant(const Call& call) {
  const auto& a = call.as<ConstantAttrs>();
  const Tensor value = widen(a.value);
  Tensor& y = call.results[0];
  if (!a.splat) {
    y = value;
    return;
  }
  for (double& v : y.f) v = value.f[0];
  for (int64_t& v : y.i) v = value.i[0];
  for (auto& v : y.c) v = value.c[0];
}

void iota(const Call& call) {
  const auto axis = size_t(call.as<IotaAttrs>().axis);
  Tensor& y = call.results[0];
  for_each_index(y.shape, [&](int64_t flat, const Dims& index) {
    const auto at = size_t(flat);
    if (!y.f.empty()) y.f[at] = double(index[axis]);
    if (!y.i.empty()) y.i[at] = index[axis];
    if (!y.c.empty()) y.c[at] = double(index[axis]);
  });
}

}  // namespace

RLX_DEFINE_REFERENCE(Input) = unbound;
RLX_DEFINE_REFERENCE(Param) = unbound;
RLX_DEFINE_REFERENCE(Constant) = constant;
RLX_DEFINE_REFERENCE(Iota) = iota;

}  // namespace rlx::reference
