#include "rlx/ops/group.h"

#include <algorithm>

#include "rlx/ops/build.h"
#include "rlx/ops/cost_util.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/inline_body.h"

namespace rlx {

RLX_USE_OP(Group);

namespace {

std::vector<TensorType> infer_group(const InferContext& c) {
  const GraphRef& body = c.as<GroupAttrs>().body;
  std::vector<TensorType> results = infer_body(c, body);
  if (!group_root(*body)) {
    user_error("the body needs one call that is neither elementwise nor a leaf");
  }
  for (const Output& o : body->outputs()) {
    if (body->node(o.value).op->has(kLeaf)) {
      user_error("the result '{}' is not computed by the body", o.name);
    }
  }
  return results;
}

std::vector<Value> expand_group(Builder& b, const Attrs& attrs, std::span<const Value> operands) {
  const auto& a = attrs.as<GroupAttrs>();
  return inline_body(b, *a.body, operands, a.strict_rounding);
}

// The flops of all calls; only operands and results go through memory.
Cost cost_group(const CostContext& c) {
  const Graph& body = *c.attrs.as<GroupAttrs>().body;
  Cost cost{0, io_bytes(c)};
  for (const Node& n : body.nodes()) {
    if (n.op->has(kLeaf)) continue;
    std::vector<TensorType> types;
    for (Value v : n.operands) types.push_back(body.type(v));
    cost.flops += cost_of(*n.op, {n.attrs, types, n.results}).flops;
  }
  return cost;
}

}  // namespace

const Node* group_root(const Graph& body) {
  const Node* root = nullptr;
  for (const Node& n : body.nodes()) {
    if (n.op->has(kElementwise) || n.op->has(kLeaf)) continue;
    if (root) return nullptr;
    root = &n;
  }
  return root;
}

RLX_DEFINE_OP(Group) = {
    .name = "Group",
    .fields = RLX_FIELDS(GroupAttrs, body, strict_rounding),
    .doc = R"(A call and its elementwise neighbours as one step: results = body(operands).

body: a graph whose inputs are the operands in order and whose outputs are the results, each computed
by the body. It has one root, a call that is neither elementwise nor a leaf (a product, a
convolution, a norm, a reduction); all other nodes are elementwise calls before or after it, or
Constants. f32 and f64 give the bits of the inlined body.
strict_rounding: values of 16-bit floats are rounded after every call, as in the inlined body. Else
they stay in f32 within the group, and are rounded by Casts and where they become results.
Errors: a body with params, updates, other input types than the operands', no root or several.
Formed by the compiler; derivatives and batches are those of the inlined body.)",
    .infer = infer_group,
    .decompose = {.expand = expand_group},
    .cost = cost_group,
};

}  // namespace rlx
