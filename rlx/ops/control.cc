#include "rlx/ops/control.h"

#include "rlx/base/error.h"

namespace rlx {

void check_body(const GraphRef& body, std::string_view what, std::span<const TensorType> inputs) {
  if (!body) user_error("the {} is missing", what);
  if (!body->params().empty()) {
    user_error("the {} has the param '{}': params are captured from outside", what,
               body->name_of(body->params()[0]));
  }
  if (!body->updates().empty()) {
    user_error("the {} updates '{}': only the outermost graph may", what, body->updates()[0].param);
  }
  const std::vector<Value>& given = body->inputs();
  if (given.size() != inputs.size()) {
    user_error("the {} takes {} inputs, the operands make {}", what, given.size(), inputs.size());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (body->type(given[i]) != inputs[i]) {
      user_error("input {} of the {} ('{}') is {}, its operand makes {}", i, what,
                 body->name_of(given[i]), body->type(given[i]).to_string(), inputs[i].to_string());
    }
  }
}

std::vector<TensorType> output_types(const Graph& body) {
  std::vector<TensorType> types;
  types.reserve(body.outputs().size());
  for (const Output& o : body.outputs()) types.push_back(body.type(o.value));
  return types;
}

TensorType stacked(TensorType type, const Dim& length) {
  if (type.shape.rank() >= kMaxRank) {
    user_error("{} cannot be stacked: a tensor has at most {} axes", type.to_string(), kMaxRank);
  }
  type.shape.insert(0, length);
  type.shape.num_elements();  // checks the product
  return type;
}

TensorType slice_of(TensorType type) {
  if (type.shape.rank() == 0) user_error("a scalar has no slices");
  type.shape.erase(0);
  return type;
}

}  // namespace rlx
