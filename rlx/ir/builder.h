// Builder: appends checked calls to a graph.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "rlx/ir/graph.h"
#include "rlx/ir/op.h"

namespace rlx {

// Functions that build one op each stand in rlx/ops/build.h: add(b, x, y), matmul(b, x, y), ...
class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) {}

  Graph& graph() { return graph_; }
  const TensorType& type(Value v) const { return graph_.type(v); }
  const Shape& shape(Value v) const { return graph_.type(v).shape; }
  DType dtype(Value v) const { return graph_.type(v).dtype; }
  // The node that made the value.
  const Node& node_of(Value v) const { return graph_.node(v); }

  // Appends a call: normalizes the attributes, infers the result types, returns the results.
  // Throws Error(kUser) with the op's name, the operand types and what was wrong.
  std::vector<Value> call(const OpDef& op, Attrs attrs, std::span<const Value> operands);
  std::vector<Value> call(const OpDef& op, Attrs attrs, std::initializer_list<Value> operands) {
    return call(op, std::move(attrs), std::span<const Value>(operands.begin(), operands.size()));
  }
  // The same for the first result.
  Value call1(const OpDef& op, Attrs attrs, std::initializer_list<Value> operands) {
    return call(op, std::move(attrs), operands)[0];
  }
  // With the attribute struct itself.
  template <class S>
  Value op(const OpDef& op, S attrs, std::initializer_list<Value> operands) {
    return call(op, Attrs::of(op.fields, std::move(attrs)), operands)[0];
  }

  // Labels the nodes that are appended from now on.
  void set_label(std::string_view label) { label_ = label; }
  const std::string& label() const { return label_; }

 private:
  Graph& graph_;
  std::string label_;
};

// Normalized attributes and result types of a call, without a graph.
struct InferredCall {
  Attrs attrs;
  std::vector<TensorType> results;
};
InferredCall infer_call(const OpDef& op, Attrs attrs, std::span<const TensorType> operands);

}  // namespace rlx
