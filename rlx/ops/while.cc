#include "rlx/ops/build.h"
#include "rlx/ops/control.h"
#include "rlx/ops/infer_util.h"

namespace rlx {

RLX_USE_OP(While);

namespace {

std::vector<TensorType> infer_while(const InferContext& c) {
  const auto& a = c.as<WhileAttrs>();
  if (a.num_carries < 1 || uint64_t(a.num_carries) > c.operands.size()) {
    user_error("num_carries is {}, expected 1 to the number of operands, {}", a.num_carries,
               c.operands.size());
  }
  if (a.max_iterations && *a.max_iterations < 0) {
    user_error("max_iterations is {}, it cannot be negative", *a.max_iterations);
  }
  check_body(a.condition, "condition", c.operands);
  check_body(a.body, "body", c.operands);
  const std::vector<TensorType> predicate = output_types(*a.condition);
  if (predicate != std::vector<TensorType>{{DType::kBool, {}}}) {
    user_error("the condition must have one output, bool[]; it has {}{}", predicate.size(),
               predicate.empty() ? "" : ", the first is " + predicate[0].to_string());
  }
  const auto carries = c.operands.first(size_t(a.num_carries));
  std::vector<TensorType> results = output_types(*a.body);
  if (results.size() != carries.size()) {
    user_error("the body has {} outputs for {} carries", results.size(), carries.size());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] == carries[i]) continue;
    user_error("carry {} is {}, the body makes it {}", i, carries[i].to_string(),
               results[i].to_string());
  }
  return results;
}

}  // namespace

RLX_DEFINE_OP(While) = {
    .name = "While",
    .fields = RLX_FIELDS(WhileAttrs, condition, body, num_carries, max_iterations),
    .flags = kControl,
    .doc =
        R"(A loop: while condition(carries, captures) holds, carries = body(carries, captures).
Operands: carries (at least one), then captures: tensors of any dtype. Attributes: condition, a graph
over carries and captures with one output, bool []; body, a graph over the same inputs that gives the
next carries, of the same types; num_carries; max_iterations, optional: the loop stops after as many
rounds though the condition still holds. Both graphs have no params and updates. Results: the final
carries, which are the operands if the condition does not hold at first.
Errors: num_carries out of range; a negative max_iterations; graphs that are missing or of other
inputs or outputs.
Derivative: forward mode always; reverse mode only with max_iterations, as that of the Scan of this
length whose steps do nothing once the condition fails. Batching: the loop runs until it is over for
all lanes; the carries of a lane that is done stay.)",
    .infer = infer_while,
};

}  // namespace rlx
