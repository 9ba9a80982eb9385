#include "rlx/ops/transform_region.h"

#include "rlx/ops/elementwise_samples.h"

namespace rlx {

RLX_USE_OP(TransformRegion);

namespace {

Attrs attrs(std::vector<int64_t> steps) {
  return Attrs::of(kTransformRegionOp.fields, TransformRegionAttrs{std::move(steps)});
}

Sample sample(std::string name, DType t, std::vector<Dims> operands, std::vector<int64_t> steps) {
  Sample s{std::move(name), attrs(std::move(steps)), {}};
  for (Dims& d : operands) s.operands.push_back({t, std::move(d), integers(0, 9)});
  s.grad = grad_for(t);
  return s;
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  for (DType t : members(dtypes::kAny)) {
    list.push_back(sample("of_" + std::string(to_string(t)), t, {{2, 3, 5}}, {0}));
  }
  const DType f32 = DType::kF32;
  list.push_back(sample("image", f32, {{1, 2, 7, 5}}, {0, 1}));
  list.push_back(sample("large", f32, {{2, 13, 17}}, {0, 1}));
  list.push_back(sample("second_operand", f32, {{1, 2, 2}, {3, 1, 4}}, {0, 1, 3}));
  list.push_back(sample("empty", f32, {{0, 3, 2}}, {0}));
  return list;
}

std::vector<WrongCall> wrong_calls() {
  const TensorType x{DType::kF32, {1, 2, 3}}, flat{DType::kF32, {2, 3}};
  return {
      {"no_operand", attrs({0}), {}, "expected at least 1 operand, got 0"},
      {"no_steps", attrs({}), {x}, "there are no steps"},
      {"later", attrs({1}), {x}, "step 0 reads value 1: 1 operands and 0 earlier steps"},
      {"negative", attrs({0, -1}), {x}, "step 1 reads value -1"},
      {"rank", attrs({0}), {flat}, "step 0 doubles [2, 3]: at least 3 axes are expected"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(TransformRegion) = {samples, wrong_calls};

}  // namespace rlx
