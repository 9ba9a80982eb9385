#include "rlx/ops/group.h"

#include "rlx/backend/reference/reference.h"
#include "rlx/ir/leaf.h"

namespace rlx::reference {
namespace {

// Rounding inside the group is not part of the formula: everything stays wide.
void run(const Call& call) {
  const Graph& body = *call.as<GroupAttrs>().body;
  std::map<std::string, Tensor> inputs;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    inputs[body.name_of(body.inputs()[i])] = call.operands[i];
  }
  std::vector<Tensor> results = evaluate(body, inputs);
  for (size_t i = 0; i < results.size(); ++i) call.results[i] = std::move(results[i]);
}

}  // namespace

RLX_DEFINE_REFERENCE(Group) = run;

}  // namespace rlx::reference
