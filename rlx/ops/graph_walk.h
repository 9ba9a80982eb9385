// The walk that transforms of graphs share: from one graph into a builder, with something (a value
// and its tangent, a value and whether it is batched) kept for every value of the source.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "rlx/base/error.h"
#include "rlx/ir/builder.h"

namespace rlx {

template <class T>
class GraphWalk {
 public:
  GraphWalk(const GraphWalk&) = delete;
  GraphWalk& operator=(const GraphWalk&) = delete;

  // Takes what stands for the inputs, then for the params; gives what stands for the outputs.
  std::vector<T> run(std::span<const T> leaves) {
    const std::vector<Value>&inputs = source_.inputs(), &params = source_.params();
    if (inputs.size() + params.size() != leaves.size()) {
      internal_error("'{}' has {} leaves, {} are bound", source_.name(),
                     inputs.size() + params.size(), leaves.size());
    }
    for (size_t i = 0; i < leaves.size(); ++i) {
      const Value v = i < inputs.size() ? inputs[i] : params[i - inputs.size()];
      of_[v.node] = {leaves[i]};
    }
    const std::string label = b_.label();  // of the call that a body stands for
    for (uint32_t id = 0; id < source_.size(); ++id) {
      if (!of_[id].empty()) continue;
      const Node& n = source_.node(id);
      b_.set_label(n.label.empty() ? label : n.label);
      of_[id] = step(n);
    }
    b_.set_label(label);
    std::vector<T> outputs;
    for (const Output& o : source_.outputs()) outputs.push_back(get(o.value));
    return outputs;
  }

  const T& get(Value v) const { return of_[v.node][v.index]; }

 protected:
  GraphWalk(Builder& b, const Graph& source) : b_(b), source_(source), of_(source.size()) {}
  ~GraphWalk() = default;

  // Appends what stands for a node and returns it, one entry for each result.
  virtual std::vector<T> step(const Node& n) = 0;

  Builder& b_;
  const Graph& source_;

 private:
  std::vector<std::vector<T>> of_;
};

}  // namespace rlx
