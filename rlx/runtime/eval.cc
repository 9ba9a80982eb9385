#include "rlx/runtime/eval.h"

#include "rlx/base/error.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/leaf.h"
#include "rlx/runtime/session.h"

namespace rlx {

RLX_USE_OP(Input);

namespace {

std::vector<Array> run_once(const Device& device, const Graph& graph, std::span<const Array> inputs,
                            CompileOptions options) {
  SessionOptions session;
  session.threads = 1;
  return Session(device, session).compile(graph, std::move(options)).run(inputs);
}

}  // namespace

std::vector<Array> eval(const Device& device, const OpDef& op, const Attrs& attrs,
                        std::span<const Array> operands) {
  Graph graph(std::string(op.name));
  Builder b(graph);
  std::vector<Value> values;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].defined()) user_error("{}: operand {} is an undefined array", op.name, i);
    values.push_back(b.op(kInputOp,
                          InputAttrs{fmt::format("operand{}", i), operands[i].dtype(),
                                     Shape(std::span<const int64_t>(operands[i].shape()))},
                          {}));
  }
  const std::vector<Value> results = b.call(op, attrs, values);
  for (size_t i = 0; i < results.size(); ++i) {
    graph.add_output(fmt::format("result{}", i), results[i]);
  }
  CompileOptions options;
  options.optimize = false;  // folding evaluates calls by this very function
  options.verify = false;
  return run_once(device, graph, operands, std::move(options));
}

std::vector<Array> eval(const Device& device, const Graph& graph, std::span<const Array> inputs) {
  if (!graph.params().empty()) {
    user_error("'{}' has params: compile it in a session that has their values", graph.name());
  }
  return run_once(device, graph, inputs, {});
}

}  // namespace rlx
