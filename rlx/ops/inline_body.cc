#include "rlx/ops/inline_body.h"

#include <algorithm>

#include "rlx/base/error.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/build.h"

namespace rlx {

RLX_USE_OP(Cast);

namespace {

bool is_half(DType t) { return is_float(t) && size_of(t) < 4; }

bool has_half(const Graph& body) {
  for (const Node& n : body.nodes()) {
    for (const TensorType& t : n.results) {
      if (is_half(t.dtype)) return true;
    }
  }
  return false;
}

Value widened(Builder& b, Value v) { return is_half(b.dtype(v)) ? cast(b, v, DType::kF32) : v; }

// A node on wide operands: the same call, its 16-bit results in f32. A Cast rounds as it says.
std::vector<Value> call_wide(Builder& b, const Node& n, std::span<const Value> operands) {
  std::vector<Value> values = b.call(*n.op, n.attrs, operands);
  for (Value& v : values) v = widened(b, v);
  return values;
}

}  // namespace

std::vector<TensorType> infer_body(const InferContext& c, const GraphRef& body) {
  if (!body) user_error("the attribute 'body' is missing");
  if (!body->params().empty() || !body->updates().empty()) {
    user_error("the body has params or updates");
  }
  if (body->inputs().size() != c.operands.size()) {
    user_error("the body takes {} inputs, {} operands were given", body->inputs().size(),
               c.operands.size());
  }
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const TensorType& expected = body->type(body->inputs()[i]);
    if (c[i] != expected) {
      user_error("operand {} is {}, the body takes {}", i, c[i].to_string(), expected.to_string());
    }
  }
  std::vector<TensorType> results;
  for (const Output& o : body->outputs()) results.push_back(body->type(o.value));
  return results;
}

std::vector<Value> inline_body(Builder& b, const Graph& body, std::span<const Value> operands,
                               bool strict_rounding) {
  if (strict_rounding || !has_half(body)) return inline_graph(b, body, operands);
  std::vector<Value> wide;
  for (Value v : operands) wide.push_back(widened(b, v));
  std::vector<Value> values = inline_graph(
      b, body, wide,
      [](Builder& inner, const Node& n, std::span<const Value> v) -> std::vector<Value> {
        return call_wide(inner, n, v);
      });
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = cast(b, values[i], body.type(body.outputs()[i].value).dtype);
  }
  return values;
}

}  // namespace rlx
