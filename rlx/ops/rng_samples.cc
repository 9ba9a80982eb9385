#include "rlx/ops/rng.h"

#include "rlx/ops/elementwise_samples.h"

namespace rlx {

RLX_USE_OP(RngFold);
RLX_USE_OP(RngUniform);
RLX_USE_OP(RngNormal);

namespace {

constexpr DType kFloats[] = {DType::kF16, DType::kBF16, DType::kF32, DType::kF64};

std::vector<SampleOperand> seeds(Dims shape) {
  return {{DType::kU64, std::move(shape), {Draw::kInteger, 0, 1e12}}};
}

std::vector<Sample> fold_samples() {
  std::vector<Sample> s;
  const auto add = [&](std::string name, Dims seed, DType index, Dims shape, Draw draw) {
    s.push_back({.name = std::move(name),
                 .attrs = Attrs::of(kRngFoldOp.fields, NoAttrs{}),
                 .operands = {{DType::kU64, std::move(seed), special(0, 1e18)},
                              {index, std::move(shape), std::move(draw)}},
                 .grad = GradCheck::kNo});
  };
  for (DType t : members(dtypes::kInts)) {
    add(std::string(to_string(t)), {7}, t, {7}, special(-100, 100));
  }
  for (const SampleShapes& shapes : binary_shapes()) {
    add(std::string(shapes.name), shapes.operands[0], DType::kI64, shapes.operands[1],
        integers(0, 1e12));
  }
  return s;
}

std::vector<WrongCall> fold_wrong_calls() {
  const Attrs none = Attrs::of(kRngFoldOp.fields, NoAttrs{});
  const TensorType seed{DType::kU64, {}};
  return {
      {"seed", none, {{DType::kI64, {}}, {DType::kI64, {}}}, "seed is i64, expected one of: u64"},
      {"index", none, {seed, {DType::kF32, {}}}, "index is f32, expected one of:"},
      {"no_index", none, {seed}, "expected 2 operands, got 1"},
      {"shapes", none, {{DType::kU64, {2}}, {DType::kI64, {3}}}, "[2]"},
  };
}

std::vector<Sample> uniform_samples() {
  std::vector<Sample> s;
  const auto add = [&](std::string name, RngUniformAttrs attrs, std::vector<SampleOperand> seed) {
    s.push_back({.name = std::move(name),
                 .attrs = Attrs::of(kRngUniformOp.fields, std::move(attrs)),
                 .operands = std::move(seed),
                 .grad = GradCheck::kNo});
  };
  for (const DType t : kFloats) {
    const std::string name = std::string(to_string(t));
    add(name, {t, {5, 7}, 0, 1, 3}, seeds({}));
    add(name + "_no_seed", {t, {5, 7}, 0, 1, 3}, {});
    add(name + "_range", {t, {37}, -2.5, 0.75, -1}, seeds({}));
    // So narrow that rounding reaches `high`, and next to zero.
    add(name + "_narrow", {t, {64}, 1, 1.0078125, 4}, seeds({}));
    add(name + "_negative", {t, {64}, -1.0078125, -1, 4}, seeds({}));
    add(name + "_to_zero", {t, {64}, -1, 0, 4}, seeds({}));
    add(name + "_seeds", {t, {3, 3}, 0, 1, 5}, seeds({2, 3}));
    add(name + "_scalar", {t, {}, 0, 1, 6}, seeds({}));
    add(name + "_one", {t, {1}, 0, 1, 7}, seeds({1}));
    add(name + "_empty", {t, {0, 4}, 0, 1, 6}, seeds({}));
    add(name + "_no_seeds", {t, {4}, 0, 1, 6}, seeds({0}));
    add(name + "_large", {t, {20011}, 0, 1, int64_t(1) << 40}, seeds({2}));
  }
  return s;
}

std::vector<Sample> normal_samples() {
  std::vector<Sample> s;
  const auto add = [&](std::string name, RngNormalAttrs attrs, std::vector<SampleOperand> seed) {
    // Near a zero of cos or sin the error is that of the radius, at most 6 scales.
    const double scale = 6 * attrs.scale + std::abs(attrs.mean);
    s.push_back({.name = std::move(name),
                 .attrs = Attrs::of(kRngNormalOp.fields, std::move(attrs)),
                 .operands = std::move(seed),
                 .grad = GradCheck::kNo,
                 .reduction = 2,
                 .scale = scale});
  };
  for (const DType t : kFloats) {
    const std::string name = std::string(to_string(t));
    add(name, {t, {5, 7}, 0, 1, 3}, seeds({}));
    add(name + "_no_seed", {t, {5, 7}, 0, 1, 3}, {});
    add(name + "_scaled", {t, {37}, -2.5, 0.75, -1}, seeds({}));
    add(name + "_constant", {t, {5}, 1.5, 0, 2}, seeds({}));
    add(name + "_seeds", {t, {3, 3}, 0, 1, 5}, seeds({2, 3}));
    add(name + "_scalar", {t, {}, 0, 1, 6}, seeds({}));
    add(name + "_one", {t, {1}, 0, 1, 7}, seeds({1}));
    add(name + "_empty", {t, {0, 4}, 0, 1, 6}, seeds({}));
    add(name + "_large", {t, {20011}, 0, 1, int64_t(1) << 40}, seeds({2}));
  }
  return s;
}

std::vector<WrongCall> wrong_uniforms() {
  const auto wrong = [](std::string name, RngUniformAttrs attrs, std::vector<TensorType> operands,
                        std::string error) {
    return WrongCall{std::move(name), Attrs::of(kRngUniformOp.fields, std::move(attrs)),
                     std::move(operands), std::move(error)};
  };
  return {
      wrong("dtype", {DType::kI32, {2}}, {}, "cannot draw i32"),
      wrong("seed", {}, {{DType::kI64, {}}}, "seed is i64"),
      wrong("two_seeds", {}, {{DType::kU64, {}}, {DType::kU64, {}}}, "expected 0 to 1 operands"),
      wrong("empty_range", {DType::kF32, {2}, 1, 1}, {}, "low must be below high"),
      wrong("rounded_away", {DType::kF16, {2}, 1, 1.00001}, {}, "is no range of f16"),
      wrong("infinite", {DType::kF16, {2}, 0, 1e6}, {}, "is no range of f16"),
      wrong("too_wide", {DType::kF32, {2}, -3e38, 3e38}, {}, "difference finite"),
      wrong("negative_size", {DType::kF32, {-2}}, {}, "negative size"),
  };
}

std::vector<WrongCall> wrong_normals() {
  const auto wrong = [](std::string name, RngNormalAttrs attrs, std::vector<TensorType> operands,
                        std::string error) {
    return WrongCall{std::move(name), Attrs::of(kRngNormalOp.fields, std::move(attrs)),
                     std::move(operands), std::move(error)};
  };
  return {
      wrong("dtype", {DType::kBool, {2}}, {}, "cannot draw bool"),
      wrong("seed", {}, {{DType::kF32, {}}}, "seed is f32"),
      wrong("negative_scale", {DType::kF32, {2}, 0, -1}, {}, "scale not negative"),
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(RngFold) = {fold_samples, fold_wrong_calls};
RLX_DEFINE_SAMPLES(RngUniform) = {uniform_samples, wrong_uniforms};
RLX_DEFINE_SAMPLES(RngNormal) = {normal_samples, wrong_normals};

}  // namespace rlx
