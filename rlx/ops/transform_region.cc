#include "rlx/ops/transform_region.h"

#include "rlx/ops/build.h"
#include "rlx/ops/infer_util.h"

namespace rlx {

RLX_USE_OP(TransformRegion);

namespace {

std::vector<TensorType> infer_transform(const InferContext& c) {
  const auto& steps = c.as<TransformRegionAttrs>().steps;
  if (c.operands.empty()) user_error("expected at least 1 operand, got 0");
  if (steps.empty()) user_error("there are no steps");
  std::vector<TensorType> values(c.operands.begin(), c.operands.end());
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i] < 0 || size_t(steps[i]) >= values.size()) {
      user_error("step {} reads value {}: {} operands and {} earlier steps are there", i, steps[i],
                 c.operands.size(), i);
    }
    TensorType t = values[size_t(steps[i])];
    const int64_t rank = t.shape.rank();
    if (rank < 3) {
      user_error("step {} doubles {}: at least 3 axes are expected", i, t.shape.to_string());
    }
    t.shape[rank - 2] = t.shape[rank - 2] * 2;
    t.shape[rank - 1] = t.shape[rank - 1] * 2;
    values.push_back(std::move(t));
  }
  return {values.back()};
}

// [..., H, W] as [..., H, 1, W, 1], each 1 expanded to 2.
Value doubled(Builder& b, Value x) {
  const Shape shape = b.shape(x);
  const int64_t rank = shape.rank();
  Shape apart = shape, twice = shape, whole = shape;
  apart.insert(rank - 1, 1);
  apart.push_back(1);
  twice.insert(rank - 1, 2);
  twice.push_back(2);
  whole[rank - 2] = shape[rank - 2] * 2;
  whole[rank - 1] = shape[rank - 1] * 2;
  return reshape(b, expand(b, reshape(b, x, apart), twice), whole);
}

std::vector<Value> expand_transform(Builder& b, const Attrs& attrs,
                                    std::span<const Value> operands) {
  const auto& steps = attrs.as<TransformRegionAttrs>().steps;
  std::vector<Value> values(operands.begin(), operands.end());
  for (int64_t from : steps) values.push_back(doubled(b, values[size_t(from)]));
  return {values.back()};
}

}  // namespace

RLX_DEFINE_OP(TransformRegion) = {
    .name = "TransformRegion",
    .fields = RLX_FIELDS(TransformRegionAttrs, steps),
    .doc =
        R"(A chain of steps that double the last two axes, each element becoming a square of four:
y[..., h, w] = x[..., h / 2, w / 2] with the quotients cut off.
Operands: one or more of at least 3 axes, any dtype. `steps` says for each step what it reads: operand
k for numbers below the count of operands, then the results of the steps in order. Result: that of the
last step. An alias of Reshape and Expand.
Derivative: the sum of each square of four.
Errors: no operand, no step, a step that reads what is not there, fewer than 3 axes.)",
    .infer = infer_transform,
    .decompose = {.expand = expand_transform},
};

Value transform_region(Builder& b, std::span<const Value> operands, std::vector<int64_t> steps) {
  const Attrs attrs = Attrs::of(kTransformRegionOp.fields, TransformRegionAttrs{std::move(steps)});
  return b.call(kTransformRegionOp, attrs, operands)[0];
}

}  // namespace rlx
