#include "rlx/ops/dim_size.h"

#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(DimSize);

namespace {

constexpr DType kAllDTypes[] = {
#define RLX_DTYPE(E, name, bytes, cls, T) DType::E,
#include "rlx/base/dtypes.def"
};

std::vector<Sample> samples() {
  std::vector<Sample> all;
  const auto add = [&](std::string name, DType t, Dims shape, int64_t axis) {
    const double high = t == DType::kBool ? 1 : 100;
    all.push_back({.name = std::move(name),
                   .attrs = Attrs::of(kDimSizeOp.fields, DimSizeAttrs{axis}),
                   .operands = {{t, std::move(shape), {Draw::kInteger, 0, high}}},
                   .grad = GradCheck::kNo});
  };
  add("vector", DType::kF32, {11}, 0);
  add("last", DType::kF32, {2, 3, 5}, -1);
  add("middle", DType::kF32, {2, 3, 5}, 1);
  add("empty", DType::kF32, {0, 3}, 0);
  add("one", DType::kF32, {1}, 0);
  add("large", DType::kU8, {3, 40000}, 1);
  for (const DType t : kAllDTypes) add(std::string(to_string(t)), t, {4, 7}, 1);
  return all;
}

std::vector<WrongCall> wrong_calls() {
  const auto at = [](int64_t axis) { return Attrs::of(kDimSizeOp.fields, DimSizeAttrs{axis}); };
  const TensorType x{DType::kF32, {2, 3}};
  return {
      {"operands", at(0), {x, x}, "expected 1 operand, got 2"},
      {"axis", at(2), {x}, "axis 2 is out of range for rank 2"},
      {"scalar", at(0), {{DType::kF32, {}}}, "axis 0 is out of range for rank 0"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(DimSize) = {samples, wrong_calls};

}  // namespace rlx
