#include "rlx/testing/call_graph.h"

#include "rlx/base/error.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/build.h"

namespace rlx {

Graph call_graph(const OpDef& op, const Attrs& attrs, std::span<const TensorType> operands) {
  Graph g{std::string(op.name)};
  Builder b(g);
  std::vector<Value> inputs;
  for (size_t i = 0; i < operands.size(); ++i) {
    inputs.push_back(input(b, fmt::format("arg{}", i), operands[i].dtype, operands[i].shape));
  }
  const std::vector<Value> results = b.call(op, attrs, inputs);
  for (size_t i = 0; i < results.size(); ++i) g.add_output(fmt::format("out{}", i), results[i]);
  return g;
}

std::vector<TensorType> operand_types(const Sample& sample) {
  std::vector<TensorType> types;
  for (const SampleOperand& o : sample.operands) {
    types.push_back({o.dtype, Shape(std::span<const int64_t>(o.shape))});
  }
  return types;
}

}  // namespace rlx
