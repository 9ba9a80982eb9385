#include "rlx/ops/build.h"
#include "rlx/ops/control.h"
#include "rlx/ops/infer_util.h"

namespace rlx {

RLX_USE_OP(If);

namespace {

std::vector<TensorType> infer_if(const InferContext& c) {
  if (c.operands.empty()) user_error("expected a predicate, got no operand");
  const auto& a = c.as<IfAttrs>();
  if (c[0] != TensorType{DType::kBool, {}}) {
    user_error("the predicate must be bool[], it is {}", c[0].to_string());
  }
  check_body(a.then_branch, "then branch", c.operands.subspan(1));
  check_body(a.else_branch, "else branch", c.operands.subspan(1));
  std::vector<TensorType> results = output_types(*a.then_branch);
  const std::vector<TensorType> other = output_types(*a.else_branch);
  if (results.empty()) user_error("the then branch has no outputs");
  if (results.size() != other.size()) {
    user_error("the then branch has {} outputs, the else branch {}", results.size(), other.size());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] == other[i]) continue;
    user_error("output {} of the then branch is {}, that of the else branch {}", i,
               results[i].to_string(), other[i].to_string());
  }
  return results;
}

}  // namespace

RLX_DEFINE_OP(If) = {
    .name = "If",
    .fields = RLX_FIELDS(IfAttrs, then_branch, else_branch),
    .flags = kControl,
    .doc =
        R"(The outputs of one of two graphs, chosen at run time; only the chosen one runs.
Operands: predicate, bool []; captures, any number of tensors of any dtype. Attributes: then_branch,
else_branch, graphs without params and updates whose inputs are the captures in their order. Results:
the outputs of the chosen branch; both branches give the same number and types, at least one.
Errors: a predicate that is not a bool scalar; a branch that is missing, has params or updates, or
takes other inputs; outputs that differ in number or type.
Derivative: that of the chosen branch, which alone is evaluated. Batching: with one predicate for all
lanes the branches are batched; with one per lane both branches run for all lanes and Where chooses,
so errors of either branch are errors of the call.)",
    .infer = infer_if,
};

}  // namespace rlx
