#include "rlx/ops/build.h"
#include "rlx/ops/elementwise_region.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(BatchElementwiseRegion);

namespace {

Attrs normalize_batch(const InferContext& c) {
  const auto& a = c.as<ElementwiseRegionAttrs>();
  if (!a.body) return c.attrs;
  GraphRef normal = scalar_body(a.body);
  return normal == a.body ? c.attrs : c.attrs.with("body", std::move(normal));
}

std::vector<TensorType> infer_batch(const InferContext& c) {
  const auto& a = c.as<ElementwiseRegionAttrs>();
  if (!a.body) user_error("the body is missing");
  if (a.body->inputs().size() != 1) {
    user_error("the body reads one plane, it has {} inputs", a.body->inputs().size());
  }
  if (c.operands.empty()) user_error("expected at least 1 operand, got 0");
  expect_min_rank(c, 0, 1, "plane 0");
  const DType expected = a.body->type(a.body->inputs()[0]).dtype;
  Dim length = 0;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    expect_same_dtype(c, 0, i);
    const Shape &x = c[0].shape, &y = c[i].shape;
    if (y.rank() != x.rank() || y.slice(1, y.rank()) != x.slice(1, x.rank())) {
      user_error("planes 0 and {} have the shapes {} and {}: only the first sizes may differ", i,
                 x.to_string(), y.to_string());
    }
    length = length + y[0];
  }
  if (c[0].dtype != expected) {
    user_error("the planes are {}, the input of the body is {}", to_string(c[0].dtype),
               to_string(expected));
  }
  Shape shape = c[0].shape;
  shape[0] = length;
  std::vector<TensorType> results;
  for (const Output& o : a.body->outputs()) results.push_back({a.body->type(o.value).dtype, shape});
  return results;
}

std::vector<Value> expand_batch(Builder& b, const Attrs& attrs, std::span<const Value> planes) {
  const auto& a = attrs.as<ElementwiseRegionAttrs>();
  std::vector<std::vector<Value>> parts(a.body->outputs().size());
  for (Value plane : planes) {
    const std::vector<Value> y = elementwise_region(b, a.body, {&plane, 1}, a.strict_rounding);
    for (size_t r = 0; r < y.size(); ++r) parts[r].push_back(y[r]);
  }
  std::vector<Value> results;
  results.reserve(parts.size());
  for (const auto& p : parts) results.push_back(p.size() == 1 ? p[0] : concat(b, p, 0));
  return results;
}

}  // namespace

RLX_DEFINE_OP(BatchElementwiseRegion) = {
    .name = "BatchElementwiseRegion",
    .fields = RLX_FIELDS(ElementwiseRegionAttrs, body, strict_rounding),
    .doc =
        R"(y = concatenation along axis 0 of body(x0), body(x1), ...: one chain over several planes.
Operands: one or more of one dtype and at least one axis, whose shapes differ in the first size only.
The body is that of an ElementwiseRegion with one input, of the planes' dtype. Results: one per output
of the body, the first size being the sum of the planes'.
Rounding as in ElementwiseRegion. An alias of one ElementwiseRegion per plane and Concat.
Derivatives and batches: those of the parts.
Errors: those of ElementwiseRegion; no plane, a scalar, planes of different dtypes or other sizes, a
body with another number of inputs.)",
    .infer = infer_batch,
    .normalize = normalize_batch,
    .decompose = {.expand = expand_batch},
};

std::vector<Value> batch_elementwise_region(Builder& b, GraphRef body,
                                            std::span<const Value> planes, bool strict_rounding) {
  const Attrs attrs = Attrs::of(kBatchElementwiseRegionOp.fields,
                                ElementwiseRegionAttrs{std::move(body), strict_rounding});
  return b.call(kBatchElementwiseRegionOp, attrs, planes);
}

}  // namespace rlx
