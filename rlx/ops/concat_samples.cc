#include "rlx/ops/samples.h"
#include "rlx/ops/shape_ops.h"

namespace rlx {

RLX_USE_OP(Concat);

namespace {

constexpr DType kAllDTypes[] = {
#define RLX_DTYPE(E, name, bytes, cls, T) DType::E,
#include "rlx/base/dtypes.def"
};

Sample make(std::string name, int64_t axis, DType t, std::vector<Dims> shapes) {
  Sample s;
  s.name = std::move(name);
  s.attrs = Attrs::of(kConcatOp.fields, ConcatAttrs{axis});
  for (Dims& shape : shapes) {
    Draw draw;
    if (t == DType::kBool) draw = {Draw::kInteger, 0, 1};
    s.operands.push_back({t, std::move(shape), draw});
  }
  s.grad = is_differentiable(t) ? GradCheck::kYes : GradCheck::kNo;
  return s;
}

std::vector<Sample> samples() {
  std::vector<Sample> s = {
      make("one", 0, DType::kF32, {{3, 2}}),
      make("first", 0, DType::kF32, {{1, 3}, {2, 3}, {5, 3}}),
      make("last", -1, DType::kF32, {{3, 1}, {3, 4}}),
      make("middle", 1, DType::kF32, {{2, 3, 4}, {2, 1, 4}, {2, 5, 4}}),
      make("vectors", 0, DType::kF32, {{1}, {7}}),
      make("empty_part", 1, DType::kF32, {{3, 0}, {3, 2}, {3, 0}}),
      make("all_empty", 1, DType::kF32, {{0, 2}, {0, 3}}),
      make("same_sizes", 1, DType::kF32, {{4, 2}, {4, 2}}),
      make("large", 1, DType::kF32, {{257, 100}, {257, 31}, {257, 64}}),
      make("long", 0, DType::kF32, {{40000}, {30011}}),
  };
  for (const DType t : kAllDTypes) {
    s.push_back(make(std::string(to_string(t)), 1, t, {{3, 2}, {3, 5}, {3, 1}}));
  }
  for (const DType t : {DType::kQ4_0, DType::kQ8_0}) {
    s.push_back(make(std::string(to_string(t)), 1, t, {{3, 2, 64}, {3, 5, 64}, {3, 1, 64}}));
    s.push_back(make("rows_" + std::string(to_string(t)), 0, t, {{3, 32}, {0, 32}, {7, 32}}));
  }
  return s;
}

WrongCall wrong(std::string name, int64_t axis, std::vector<TensorType> operands,
                std::string error) {
  return {std::move(name), Attrs::of(kConcatOp.fields, ConcatAttrs{axis}), std::move(operands),
          std::move(error)};
}

std::vector<WrongCall> wrong_calls() {
  const DType t = DType::kF32;
  return {
      wrong("none", 0, {}, "expected at least one operand"),
      wrong("dtypes", 0, {{t, {2}}, {DType::kF64, {2}}}, "f32 and f64: cast one of them"),
      wrong("ranks", 0, {{t, {2}}, {t, {2, 1}}}, "every part must have rank 1"),
      wrong("sizes", 0, {{t, {2, 3}}, {t, {2, 4}}}, "[2, 3] and [2, 4] differ on axis 1"),
      wrong("axis", 2, {{t, {2, 3}}}, "axis 2 is out of range for rank 2"),
      wrong("packed", 1, {{DType::kQ4_0, {2, 32}}, {DType::kQ4_0, {2, 32}}},
            "q4_0 moves as whole rows: axis 1 is the last"),
      wrong("scalars", 0, {{t, {}}, {t, {}}}, "out of range for rank 0"),
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Concat) = {samples, wrong_calls};

}  // namespace rlx
