#include "rlx/ops/elementwise_region.h"

#include "rlx/backend/reference/elementwise.h"
#include "rlx/ir/leaf.h"

namespace rlx::reference {
namespace {

// Every element of the result's shape has its own operands.
Tensor broadcast_to(const Tensor& t, const Dims& shape) {
  Tensor wide(t.dtype, shape);
  const Dims strides = broadcast_strides(t, shape);
  for_each_index(shape, [&](int64_t flat, const Dims& index) {
    const auto to = size_t(flat), from = size_t(offset_of(index, strides));
    if (!t.f.empty()) wide.f[to] = t.f[from];
    if (!t.i.empty()) wide.i[to] = t.i[from];
    if (!t.c.empty()) wide.c[to] = t.c[from];
  });
  return wide;
}

void region(const Call& call) {
  const auto& a = call.as<ElementwiseRegionAttrs>();
  const Graph& body = *a.body;
  const Dims& shape = call.results[0].shape;
  std::vector<Tensor> values(body.size());
  size_t next = 0;
  for (uint32_t id = 0; id < body.size(); ++id) {
    const Node& n = body.node(id);
    if (is_signature_leaf(n)) {
      values[id] = broadcast_to(call.operands[next++], shape);
      continue;
    }
    std::vector<Tensor> operands;
    for (Value v : n.operands) operands.push_back(values[v.node]);
    Tensor result = evaluate(*n.op, n.attrs, operands)[0];
    const bool half = result.is_float() && size_of(result.dtype) < 4;
    if (half && (a.strict_rounding || n.op->name == "Cast")) result = widen(narrow(result));
    values[id] = is_constant(n) ? broadcast_to(result, shape) : std::move(result);
  }
  for (size_t i = 0; i < call.results.size(); ++i) {
    call.results[i] = values[body.outputs()[i].value.node];
  }
}

}  // namespace

RLX_DEFINE_REFERENCE(ElementwiseRegion) = region;

}  // namespace rlx::reference
