#include "rlx/ops/bind_size.h"

#include "rlx/base/error.h"
#include "rlx/ops/elementwise.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(BindSize);

namespace {

std::vector<TensorType> infer(const InferContext& c) {
  expect_operands(c, 1);
  expect_dtype(c, 0, DType::kI64, "count");
  expect_rank(c, 0, 0, "count");
  const auto& a = c.as<BindSizeAttrs>();
  if (a.symbol.empty()) user_error("the size that it sets has no name");
  Dim::symbol(a.symbol);  // throws if it is no name
  if (a.bound.is_static() && a.bound.value() < 0) {
    user_error("the bound {} of the size '{}' is negative", a.bound.value(), a.symbol);
  }
  std::vector<std::string> symbols;
  a.bound.collect_symbols(symbols);
  for (const std::string& s : symbols) {
    if (s == a.symbol) user_error("the bound of the size '{}' depends on the size itself", s);
  }
  return {c[0]};
}

Cost cost(const CostContext&) { return {}; }

}  // namespace

RLX_DEFINE_OP(BindSize) = {
    .name = "BindSize",
    .fields = RLX_FIELDS(BindSizeAttrs, symbol, bound),
    .flags = kNoGradient | kBindsSize,
    .doc =
        R"(Sets a size of the graph: `symbol` has the value `count` in this run.
Operands: count, i64 []. Attributes: symbol, a name that no other call and no shape of an input or param
sets; bound, the largest value. Result: count. Calls that come later may have the symbol in their shapes.
A plan reserves memory for the bound, and runs work on the size that was set.
Errors: a count below 0 or above the bound (in the run). Cannot be batched: each lane would have a size
of its own. Must not stand in a body (of If, While, Scan or CustomFn).
Derivative: zero.)",
    .infer = infer,
    .jvp = jvp_zero,
    .vjp = vjp_zero,
    .cost = cost,
};

Value bind_size(Builder& b, Value count, std::string symbol, Dim bound) {
  return b.op(kBindSizeOp, BindSizeAttrs{std::move(symbol), std::move(bound)}, {count});
}

}  // namespace rlx
