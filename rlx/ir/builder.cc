#include "rlx/ir/builder.h"

#include "rlx/base/error.h"
#include "rlx/ir/packed.h"

namespace rlx {
namespace {

// Packed dtypes have no elements of their own: ops must know them.
void check_packed(const OpDef& op, const TensorType& t, std::string_view what) {
  if (!is_packed(t.dtype)) return;
  if ((op.flags & kPackedRows) == 0 && !op.has(kControl)) {
    user_error("{} is {}: this op has no packed dtypes, dequantize first", what, t.to_string());
  }
  const int64_t block = block_of(t.dtype).elements, rank = t.shape.rank();
  if (rank == 0 || (t.shape[rank - 1].is_static() && t.shape[rank - 1].value() % block != 0)) {
    user_error("{} is {}: its last axis must be whole blocks of {} elements", what, t.to_string(),
               block);
  }
}

}  // namespace

InferredCall infer_call(const OpDef& op, Attrs attrs, std::span<const TensorType> operands) {
  if (!attrs.table() || *attrs.table()->type != *op.fields->type) {
    internal_error("{}: called with the attributes of another op", op.name);
  }
  try {
    for (size_t i = 0; i < operands.size(); ++i) {
      check_packed(op, operands[i], fmt::format("operand {}", i));
    }
    if (op.normalize) attrs = op.normalize({op, attrs, operands});
    auto results = op.infer({op, attrs, operands});
    for (const TensorType& t : results) check_packed(op, t, "the result");
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
