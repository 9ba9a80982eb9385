#include "rlx/ir/builder.h"

#include "rlx/base/error.h"

namespace rlx {

InferredCall infer_call(const OpDef& op, Attrs attrs, std::span<const TensorType> operands) {
  if (!attrs.table() || *attrs.table()->type != *op.fields->type) {
    internal_error("{}: called with the attributes of another op", op.name);
  }
  try {
    if (op.normalize) attrs = op.normalize({op, attrs, operands});
    auto results = op.infer({op, attrs, operands});
    return {std::move(attrs), std::move(results)};
  } catch (const Error& e) {
    std::string types;
    for (const TensorType& t : operands) types += (types.empty() ? "" : ", ") + t.to_string();
    throw e.with_context(fmt::format("{}({})", op.name, types));
  }
}

std::vector<Value> Builder::call(const OpDef& op, Attrs attrs, std::span<const Value> operands) {
  std::vector<TensorType> types;
  types.reserve(operands.size());
  for (Value v : operands) {
    if (!v.valid() || v.node >= graph_.size() || v.index >= graph_.node(v).results.size()) {
      user_error("{}: operand {} is not a value of this graph", op.name, types.size());
    }
    types.push_back(graph_.type(v));
  }
  InferredCall inferred = infer_call(op, std::move(attrs), types);
  Node node{&op,
            std::move(inferred.attrs),
            {operands.begin(), operands.end()},
            std::move(inferred.results),
            label_};
  const size_t count = node.results.size();
  const uint32_t id = graph_.append(std::move(node));
  std::vector<Value> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = {id, uint32_t(i)};
  return values;
}

}  // namespace rlx
