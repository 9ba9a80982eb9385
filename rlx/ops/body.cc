#include "rlx/ops/body.h"

#include <fmt/core.h>

#include "rlx/ops/build.h"

namespace rlx {

Value BodyWriter::add_input(const TensorType& type) {
  return input(builder_, fmt::format("in{}", graph_.inputs().size()), type.dtype, type.shape);
}

std::vector<Value> BodyWriter::add_inputs(std::span<const TensorType> types) {
  std::vector<Value> values;
  for (const TensorType& t : types) values.push_back(add_input(t));
  return values;
}

void BodyWriter::add_output(Value value) {
  graph_.add_output(fmt::format("out{}", graph_.outputs().size()), value);
}

void BodyWriter::add_outputs(std::span<const Value> values) {
  for (Value v : values) add_output(v);
}

std::vector<TensorType> types_of(const Builder& b, std::span<const Value> values) {
  std::vector<TensorType> types;
  types.reserve(values.size());
  for (Value v : values) types.push_back(b.type(v));
  return types;
}

}  // namespace rlx
