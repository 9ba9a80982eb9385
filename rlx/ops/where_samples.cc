#include "rlx/ops/elementwise_samples.h"

namespace rlx {

RLX_USE_OP(Where);

namespace {

Attrs attrs() { return Attrs::of(kWhereOp.fields, NoAttrs{}); }

Sample sample(std::string name, DType t, Dims condition, Dims x, Dims y, Draw draw = {}) {
  Sample s{std::move(name),
           attrs(),
           {{DType::kBool, std::move(condition), integers(0, 1)},
            {t, std::move(x), draw},
            {t, std::move(y), draw}}};
  s.grad = draw.kind == Draw::kSpecial ? GradCheck::kNo : grad_for(t);
  return s;
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  for (DType t : members(dtypes::kAny)) {
    const std::string name(to_string(t));
    list.push_back(sample("of_" + name, t, {3, 7}, {3, 7}, {3, 7}, integers(0, 5)));
    list.push_back(sample("large_" + name, t, {4099}, {4099}, {1}, integers(0, 5)));
    list.push_back(sample("special_" + name, t, {5, 7}, {7}, {5, 7}, special()));
  }
  const DType f32 = DType::kF32;
  list.push_back(sample("scalars", f32, {}, {}, {}));
  list.push_back(sample("empty", f32, {0}, {0}, {}));
  list.push_back(sample("scalar_condition", f32, {}, {5, 17}, {5, 17}));
  list.push_back(sample("scalar_x", f32, {5, 17}, {}, {5, 17}));
  list.push_back(sample("scalar_y", f32, {5, 17}, {5, 17}, {}));
  list.push_back(sample("only_condition_is_large", f32, {5, 17}, {}, {1}));
  list.push_back(sample("row_column_scalar", f32, {17}, {5, 1}, {}));
  list.push_back(sample("condition_column", f32, {5, 1}, {5, 17}, {17}));
  list.push_back(sample("middle", f32, {3, 1, 7}, {3, 5, 7}, {1, 5, 1}));
  list.push_back(sample("all_different", f32, {2, 1, 1}, {1, 3, 1}, {1, 1, 4}));
  list.push_back(sample("ranks", f32, {4, 1}, {2, 3, 4, 5}, {5}));
  list.push_back(sample("long_rows", f32, {3, 1}, {3, 1031}, {1031}));
  return list;
}

std::vector<WrongCall> wrong_calls() {
  const TensorType b{DType::kBool, {2}}, f32{DType::kF32, {2}}, f64{DType::kF64, {2}};
  return {
      {"two_operands", attrs(), {b, f32}, "expected 3 operands, got 2"},
      {"float_condition", attrs(), {f32, f32, f32}, "the condition is f32, expected one of: bool"},
      {"mixed_dtypes", attrs(), {b, f32, f64}, "operands 1 and 2 have the dtypes f32 and f64"},
      {"shapes", attrs(), {b, f32, {DType::kF32, {3}}}, "shapes [2] and [3] do not broadcast"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Where) = {samples, wrong_calls};

}  // namespace rlx
