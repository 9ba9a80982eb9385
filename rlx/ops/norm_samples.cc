// Of LayerNorm, RmsNorm and their gradients.
#include "rlx/ops/norm.h"

#include <cmath>
#include <limits>

#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(LayerNorm);
RLX_USE_OP(LayerNormBackwardInput);
RLX_USE_OP(LayerNormBackwardGamma);
RLX_USE_OP(RmsNorm);
RLX_USE_OP(RmsNormBackwardInput);
RLX_USE_OP(RmsNormBackwardGamma);
RLX_USE_OP(RmsNormBackwardBeta);

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  std::string name;
  DType dtype;
  Dims shape;
  NormAttrs attrs{-1, 0x1p-17};  // exact in every dtype
  int affine = 2;                // operands gamma, beta
  Draw x{};
  GradCheck grad = GradCheck::kYes;
  double scale = 1;  // size of what the sums add, against results of about 1
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const std::string name(to_string(t));
    all.push_back({name, t, {7, 13}});
    all.push_back({name + "_plain", t, {5, 16}, {}, 0});
    all.push_back({name + "_gamma", t, {5, 19}, {}, 1});
    all.push_back({name + "_long", t, {3, 1031}});
  }
  const DType t = DType::kF32;
  all.push_back({"axis1_of_three", t, {3, 5, 7}, {1, 0x1p-17}});
  all.push_back({"axis0", DType::kF64, {4, 6}, {0, 1e-5}});
  all.push_back({"axis_minus2", DType::kF64, {2, 3, 5}, {-2, 1e-6}});
  all.push_back({"last_of_four", t, {2, 3, 2, 11}, {-1, 0x1p-10}, 1});
  for (const DType narrow : {DType::kF16, DType::kBF16}) {
    const std::string name(to_string(narrow));
    all.push_back({name + "_batch_axes", narrow, {3, 5, 7}, {-1, 0x1p-17, 1}});
  }
  all.push_back({"batch_axes", t, {2, 3, 5, 17}, {-1, 0x1p-17, 2}});
  all.push_back({"batch_axes_many_rows", t, {2, 67, 11}, {-1, 0x1p-17, 1}});
  all.push_back({"batch_axes_all", DType::kF64, {4, 3, 7}, {1, 1e-5, 1}, 1});
  all.push_back({"batch_axes_empty", t, {0, 3, 5}, {-1, 0x1p-17, 1}});
  all.push_back({"batch_axes_no_rows", t, {3, 0, 5}, {-1, 0x1p-17, 1}});
  all.push_back({"vector", t, {37}});
  all.push_back({"eps0", DType::kF64, {3, 8}, {-1, 0}});
  all.push_back({"length1", t, {4, 1}});
  all.push_back({"batch0", t, {0, 5}});
  all.push_back({"empty_row", t, {3, 0}});
  all.push_back({"large", t, {257, 515}});
  for (const int64_t n : {2, 3, 15, 17, 63, 64, 65, 127, 128, 129}) {
    all.push_back({"length" + std::to_string(n), t, {3, n}});
  }
  // The mean is exact to an ulp of its sum, which is some thousand ulps of the deviations; one pass
  // over x * x would lose all digits.
  all.push_back({"far_mean", t, {3, 64}, {}, 2, {.low = 1000, .high = 1001}, GradCheck::kNo, 400});
  all.push_back(
      {"not_finite",
       t,
       {3, 4},
       {},
       2,
       {.kind = Draw::kGiven,
        .values = {1, 2, std::nan(""), 4, kInfinity, 1, 2, 3, -kInfinity, kInfinity, 1, 2}},
       GradCheck::kNo});
  return all;
}

// Elements of a row; `affine` gets the shape of gamma.
int64_t row_length(const Case& c, Dims* affine) {
  const auto axis = normalize_axis(c.attrs.axis, int64_t(c.shape.size()));
  const Dims row(c.shape.begin() + axis, c.shape.end());
  *affine = Dims(c.shape.begin(), c.shape.begin() + c.attrs.batch_axes);
  affine->insert(affine->end(), row.begin(), row.end());
  return num_elements(row);
}

template <const OpDef& kOp>
std::vector<Sample> samples_forward() {
  std::vector<Sample> all;
  for (const Case& c : cases()) {
    Dims affine;
    const int64_t n = row_length(c, &affine);
    Sample s{.name = c.name,
             .attrs = Attrs::of(kOp.fields, c.attrs),
             .operands = {{c.dtype, c.shape, c.x}},
             .grad = c.grad,
             .reduction = std::max<int64_t>(n, 1),
             .extra_ulps = 8,
             .scale = c.scale};
    for (int i = 0; i < c.affine; ++i) s.operands.push_back({c.dtype, affine});
    all.push_back(std::move(s));
  }
  return all;
}

template <const OpDef& kOp>
std::vector<Sample> samples_backward() {
  std::vector<Sample> all;
  for (const Case& c : cases()) {
    Dims affine;
    const int64_t n = row_length(c, &affine);
    const int64_t rows = n == 0 ? 0 : num_elements(c.shape) / n;
    Sample s{.name = c.name,
             .attrs = Attrs::of(kOp.fields, c.attrs),
             .operands = {{c.dtype, c.shape, c.x}},
             .grad = c.grad,
             .reduction = std::max<int64_t>(std::max(n, rows), 1),
             .extra_ulps = 16,
             .scale = 4 * c.scale};
    if (c.affine > 0) s.operands.push_back({c.dtype, affine});
    s.operands.push_back({c.dtype, c.shape});
    all.push_back(std::move(s));
  }
  return all;
}

template <const OpDef& kOp>
std::vector<Sample> samples_gamma() {
  std::vector<Sample> all;
  for (Sample& s : samples_backward<kOp>()) {
    if (s.operands.size() == 3) s.operands.erase(s.operands.begin() + 1);
    all.push_back(std::move(s));
  }
  return all;
}

template <const OpDef& kOp>
std::vector<WrongCall> wrong_forward() {
  const auto with = [](NormAttrs a) { return Attrs::of(kOp.fields, a); };
  const TensorType x{DType::kF32, {2, 3, 4}}, last{DType::kF32, {4}};
  return {
      {"operands", with({}), {x, last, last, last}, "expected 1 to 3 operands, got 4"},
      {"axis", with({3, 1e-5}), {x}, "axis 3"},
      {"gamma",
       with({1, 0x1p-17}),
       {x, last},
       "gamma must be f32[3, 4] (x from the axis on), it is f32[4]"},
      {"gamma_of_batch",
       with({-1, 0x1p-17, 1}),
       {x, last},
       "gamma must be f32[2, 4] (the batch axes of x, then x from the axis on), it is f32[4]"},
      {"batch_axes", with({1, 0x1p-17, 2}), {x}, "batch_axes is 2, expected 0 to 1"},
      {"batch_axes_negative", with({1, 0x1p-17, -1}), {x}, "batch_axes is -1, expected 0 to 1"},
      {"beta_dtype", with({}), {x, last, {DType::kF64, {4}}}, "beta must be f32[4]"},
      {"eps", with({-1, -1.0}), {x}, "eps is -1, expected a number that is not negative"},
      {"integers", with({}), {{DType::kI32, {2, 3}}}, "x is i32"},
  };
}

template <const OpDef& kOp>
std::vector<WrongCall> wrong_backward() {
  const auto with = [](NormAttrs a) { return Attrs::of(kOp.fields, a); };
  const TensorType x{DType::kF32, {2, 3}}, gamma{DType::kF32, {3}};
  return {
      {"operands", with({}), {x}, "expected 2 to 3 operands, got 1"},
      {"dy", with({}), {x, gamma, {DType::kF32, {3, 2}}}, "operands 0 and 2 must have one type"},
      {"gamma", with({}), {x, {DType::kF32, {2}}, x}, "gamma must be f32[3]"},
  };
}

template <const OpDef& kOp>
std::vector<WrongCall> wrong_gamma() {
  const Attrs plain = Attrs::of(kOp.fields, NormAttrs{});
  const TensorType x{DType::kF32, {2, 3}};
  return {
      {"operands", plain, {x, {DType::kF32, {3}}, x}, "expected 2 operands, got 3"},
      {"dy", plain, {x, {DType::kF64, {2, 3}}}, "operands 0 and 1 must have one type"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(LayerNorm) = {samples_forward<kLayerNormOp>, wrong_forward<kLayerNormOp>};
RLX_DEFINE_SAMPLES(LayerNormBackwardInput) = {samples_backward<kLayerNormBackwardInputOp>,
                                              wrong_backward<kLayerNormBackwardInputOp>};
RLX_DEFINE_SAMPLES(LayerNormBackwardGamma) = {samples_gamma<kLayerNormBackwardGammaOp>,
                                              wrong_gamma<kLayerNormBackwardGammaOp>};
RLX_DEFINE_SAMPLES(RmsNorm) = {samples_forward<kRmsNormOp>, wrong_forward<kRmsNormOp>};
RLX_DEFINE_SAMPLES(RmsNormBackwardInput) = {samples_backward<kRmsNormBackwardInputOp>,
                                            wrong_backward<kRmsNormBackwardInputOp>};
RLX_DEFINE_SAMPLES(RmsNormBackwardGamma) = {samples_gamma<kRmsNormBackwardGammaOp>,
                                            wrong_gamma<kRmsNormBackwardGammaOp>};
RLX_DEFINE_SAMPLES(RmsNormBackwardBeta) = {samples_gamma<kRmsNormBackwardBetaOp>,
                                           wrong_gamma<kRmsNormBackwardBetaOp>};

}  // namespace rlx
