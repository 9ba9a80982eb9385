#include "rlx/ops/elementwise_samples.h"

namespace rlx {

RLX_USE_OP(Fma);

namespace {

Attrs attrs() { return Attrs::of(kFmaOp.fields, NoAttrs{}); }

Sample sample(std::string name, DType t, Dims x, Dims y, Dims z, Draw draw = {}) {
  Sample s{std::move(name),
           attrs(),
           {{t, std::move(x), draw}, {t, std::move(y), draw}, {t, std::move(z), draw}}};
  s.grad = draw.kind == Draw::kSpecial ? GradCheck::kNo : grad_for(t);
  s.scale = 4;  // of the product, which z may cancel
  return s;
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  for (DType t : members(dtypes::kReals)) {
    const std::string name(to_string(t));
    const Draw draw = is_float(t) ? Draw{} : integers(0, 300);
    list.push_back(sample("of_" + name, t, {3, 7}, {3, 7}, {3, 7}, draw));
    list.push_back(sample("large_" + name, t, {4099}, {4099}, {1}, draw));
    if (is_float(t)) {
      list.push_back(sample("special_" + name, t, {5, 7}, {7}, {5, 1}, special()));
      // The product's last bits survive: two roundings would give 0.
      Sample s = sample("exact_" + name, t, {1}, {1}, {1}, given({1.0009765625}));
      s.operands[2].draw = given({t == DType::kF32 ? -1.001953125 - 0x1p-20 : -1.0});
      s.scale = 0;
      list.push_back(std::move(s));
    }
  }
  const DType f32 = DType::kF32;
  list.push_back(sample("scalars", f32, {}, {}, {}));
  list.push_back(sample("empty", f32, {0}, {0}, {}));
  list.push_back(sample("scalar_factor", f32, {5, 17}, {}, {5, 17}));
  list.push_back(sample("row_column_scalar", f32, {17}, {5, 1}, {}));
  list.push_back(sample("middle", f32, {3, 1, 7}, {3, 5, 7}, {1, 5, 1}));
  list.push_back(sample("all_different", f32, {2, 1, 1}, {1, 3, 1}, {1, 1, 4}));
  list.push_back(sample("long_rows", f32, {3, 1}, {3, 1031}, {1031}));
  return list;
}

std::vector<WrongCall> wrong_calls() {
  const TensorType f32{DType::kF32, {2}}, f64{DType::kF64, {2}}, b{DType::kBool, {2}};
  return {
      {"two_operands", attrs(), {f32, f32}, "expected 3 operands, got 2"},
      {"bool", attrs(), {b, b, b}, "x is bool, expected one of"},
      {"mixed_dtypes", attrs(), {f32, f32, f64}, "operands 0 and 2 have the dtypes f32 and f64"},
      {"shapes", attrs(), {f32, f32, {DType::kF32, {3}}}, "shapes [2] and [3] do not broadcast"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Fma) = {samples, wrong_calls};

}  // namespace rlx
