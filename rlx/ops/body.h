// Graphs that rules build as the bodies of control flow.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "rlx/ir/builder.h"

namespace rlx {

// A body under construction. Inputs and outputs are named by their position.
class BodyWriter {
 public:
  explicit BodyWriter(std::string name) : graph_(std::move(name)), builder_(graph_) {}
  BodyWriter(const BodyWriter&) = delete;
  BodyWriter& operator=(const BodyWriter&) = delete;

  Builder& builder() { return builder_; }
  Value add_input(const TensorType& type);
  std::vector<Value> add_inputs(std::span<const TensorType> types);
  void add_output(Value value);
  void add_outputs(std::span<const Value> values);
  GraphRef take() { return std::make_shared<const Graph>(std::move(graph_)); }

 private:
  Graph graph_;
  Builder builder_;
};

std::vector<TensorType> types_of(const Builder& b, std::span<const Value> values);

// The values behind one another.
template <class... Lists>
std::vector<Value> joined(const Lists&... lists) {
  std::vector<Value> all;
  (all.insert(all.end(), lists.begin(), lists.end()), ...);
  return all;
}

}  // namespace rlx
