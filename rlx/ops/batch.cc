#include "rlx/ops/batch.h"

#include <algorithm>

#include "rlx/base/error.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/build.h"
#include "rlx/ops/derive.h"
#include "rlx/ops/graph_walk.h"
#include "rlx/ops/rules.h"

namespace rlx {
namespace {

// Knows for every value whether it has the batch axis (axis 0).
class BatchWalk final : public GraphWalk<Lane> {
 public:
  BatchWalk(Builder& b, const Graph& source, const Dim& size) : GraphWalk(b, source), size_(size) {}

 private:
  std::vector<Lane> step(const Node& n) override {
    std::vector<Value> operands;
    std::vector<uint8_t> batched;
    for (Value v : n.operands) {
      operands.push_back(get(v).value);
      batched.push_back(get(v).batched);
    }
    std::vector<Lane> lanes;
    if (std::find(batched.begin(), batched.end(), 1) == batched.end()) {
      for (Value v : copy_node(b_, n, operands)) lanes.push_back({v, false});
      return lanes;
    }
    if (!n.op->batching) return expand(n, operands, batched);
    const auto results = n.op->batching(b_, {*n.op, n.attrs, operands, {}}, batched, size_);
    if (results.size() != n.results.size()) {
      internal_error("the batching rule of {} gave {} values for {} results", n.op->name,
                     results.size(), n.results.size());
    }
    for (size_t i = 0; i < results.size(); ++i) {
      TensorType expected = n.results[i];
      expected.shape.insert(0, size_);
      if (b_.type(results[i]) != expected) {
        internal_error("the batching rule of {} gave {} instead of {}", n.op->name,
                       b_.type(results[i]).to_string(), expected.to_string());
      }
      lanes.push_back({results[i], true});
    }
    return lanes;
  }

  std::vector<Lane> expand(const Node& n, std::span<const Value> operands,
                           std::span<const uint8_t> batched) {
    if (!n.op->decompose) {
      fail(ErrorKind::kUnsupported, "{} cannot be batched: it has no rule and no decomposition",
           n.op->name);
    }
    std::vector<TensorType> types;
    for (Value v : n.operands) types.push_back(source_.type(v));
    const Graph body = expand_to_graph(*n.op, n.attrs, types);
    std::vector<Lane> in;
    for (size_t i = 0; i < operands.size(); ++i) in.push_back({operands[i], batched[i] != 0});
    std::vector<Lane> lanes = BatchWalk(b_, body, size_).run(in);
    // Results of one call agree: all batched, as a rule would give them.
    for (Lane& l : lanes) l = {with_batch(b_, l.value, l.batched, size_), true};
    return lanes;
  }

  const Dim& size_;
};

}  // namespace

std::vector<Lane> batch_graph(Builder& b, const Graph& graph, const Dim& size,
                              std::span<const Lane> leaves) {
  return BatchWalk(b, graph, size).run(leaves);
}

Value fold_batch(Builder& b, Value x, int64_t axis) {
  Shape shape = b.shape(x);
  const Dim both = shape[axis] * shape[axis + 1];
  shape.erase(axis);
  shape[axis] = both;
  return reshape(b, x, std::move(shape));
}

Value unfold_batch(Builder& b, Value x, int64_t axis, const Dim& size, const Dim& n) {
  Shape shape = b.shape(x);
  shape[axis] = n;
  shape.insert(axis, size);
  return reshape(b, x, std::move(shape));
}

}  // namespace rlx
