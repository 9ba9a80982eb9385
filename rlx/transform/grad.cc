#include "rlx/transform/grad.h"

#include "rlx/base/error.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/build.h"
#include "rlx/ops/derive.h"
#include "rlx/transform/leaves.h"

namespace rlx {
namespace {

// The prepared graph (all active nodes have rules) and the values that the names stand for.
struct Prepared {
  Graph graph;
  std::vector<Value> wrt;
};

Prepared prepare(const Graph& graph, const std::vector<std::string>& wrt) {
  Prepared p{expand_for_vjp(graph, differentiable_leaves(graph, wrt)), {}};
  p.wrt = differentiable_leaves(p.graph, wrt);
  return p;
}

void add_gradients(Builder& b, const std::vector<std::string>& names, std::span<const Value> wrt,
                   std::span<const Value> gradients) {
  for (size_t i = 0; i < names.size(); ++i) {
    const Value g = gradients[i].valid() ? gradients[i] : zeros_like(b, wrt[i]);
    b.graph().add_output(fresh_output_name(b.graph(), "d_", names[i]), g);
  }
}

}  // namespace

Graph grad(const Graph& graph, std::string_view loss, const std::vector<std::string>& wrt) {
  const TensorType& type = graph.type(graph.outputs()[graph.output_index(loss)].value);
  if (type.shape.rank() != 0 || !is_float(type.dtype)) {
    user_error("grad: the loss '{}' must be a real scalar, it is {}", loss, type.to_string());
  }
  Prepared p = prepare(graph, wrt);
  Builder b(p.graph);
  const Value output = p.graph.outputs()[p.graph.output_index(loss)].value;
  const Value seed = splat(b, type.dtype, {}, 1.0);
  add_gradients(b, wrt, p.wrt, reverse_sweep(b, {&output, 1}, {&seed, 1}, p.wrt));
  return std::move(p.graph);
}

Graph vjp(const Graph& graph, const std::vector<std::string>& wrt) {
  Prepared p = prepare(graph, wrt);
  Builder b(p.graph);
  std::vector<Value> outputs, cotangents;
  for (const Output& o : std::vector<Output>(p.graph.outputs())) {
    const TensorType type = p.graph.type(o.value);
    if (!is_differentiable(type.dtype)) continue;
    outputs.push_back(o.value);
    cotangents.push_back(
        input(b, fresh_input_name(p.graph, "ct_", o.name), type.dtype, type.shape));
  }
  add_gradients(b, wrt, p.wrt, reverse_sweep(b, outputs, cotangents, p.wrt));
  return std::move(p.graph);
}

}  // namespace rlx
