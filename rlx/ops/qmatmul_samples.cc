#include "rlx/ops/qmatmul.h"

#include <cmath>

#include "rlx/ops/elementwise_samples.h"

namespace rlx {

RLX_USE_OP(QMatMul);

namespace {

constexpr DType kI8 = DType::kI8, kI32 = DType::kI32;

Sample make(std::string name, QMatMulAttrs a, Dims x, int64_t n, bool bias) {
  const int64_t k = x.back();
  if (a.multipliers.empty()) a.multipliers = {0.02 / std::sqrt(double(k) + 1)};
  Sample s;
  s.name = std::move(name);
  s.attrs = Attrs::of(kQMatMulOp.fields, std::move(a));
  s.operands = {{kI8, std::move(x), integers(-128, 127)}, {kI8, {k, n}, integers(-128, 127)}};
  if (bias) s.operands.push_back({kI32, {n}, integers(-20000, 20000)});
  s.grad = GradCheck::kNo;
  return s;
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  for (int64_t m = 1; m <= 9; ++m) {
    list.push_back(make(fmt::format("rows{}", m), {}, {m, 37}, 13, m % 2 == 0));
  }
  const QMatMulAttrs all{.x_zero_point = -7, .w_zero_points = {5}, .out_zero_point = 11};
  list.push_back(make("zero_points", all, {6, 41}, 35, true));
  QMatMulAttrs columns = all;
  columns.w_zero_points.clear();
  for (int64_t j = 0; j < 67; ++j) {
    columns.w_zero_points.push_back(j * 3 % 256 - 128);
    columns.multipliers.push_back(0x1p-13 * double(j + 1));
  }
  list.push_back(make("columns", columns, {5, 33}, 67, true));
  list.push_back(make("columns_no_bias", columns, {2, 3, 16}, 67, false));
  list.push_back(
      make("extremes", {.x_zero_point = 127, .w_zero_points = {-128}}, {3, 300}, 5, true));
  list.push_back(make("negative", {.multipliers = {-0.01}}, {3, 5}, 4, false));
  list.push_back(make("saturated", {.multipliers = {3e38}}, {3, 5}, 4, true));
  list.push_back(make("halves", {.multipliers = {0.5}}, {30, 1}, 7, false));
  list.push_back(make("vector", all, {29}, 12, true));
  QMatMulAttrs exact = all;  // products without rounding, however they are computed
  exact.multipliers = {0x1p-7};
  list.push_back(make("batch", exact, {2, 3, 4, 8}, 6, true));
  list.push_back(make("one", {}, {1, 1}, 1, false));
  list.push_back(make("empty_sum", all, {2, 0}, 3, true));
  list.push_back(make("no_rows", {}, {0, 5}, 3, true));
  list.push_back(make("no_columns", {}, {2, 5}, 0, false));
  // One multiplier for each of no columns.
  Sample no_numbers = make("no_columns_no_numbers", {}, {2, 5}, 0, true);
  no_numbers.attrs = Attrs::of(kQMatMulOp.fields, QMatMulAttrs{});
  list.push_back(std::move(no_numbers));
  list.push_back(make("large", all, {150, 515}, 101, true));
  list.push_back(make("large_row", all, {1, 1031}, 300, true));
  return list;
}

std::vector<WrongCall> wrong_calls() {
  const auto wrong = [](std::string name, QMatMulAttrs a, std::vector<TensorType> operands,
                        std::string error) {
    if (a.multipliers.empty()) a.multipliers = {1};
    return WrongCall{std::move(name), Attrs::of(kQMatMulOp.fields, std::move(a)),
                     std::move(operands), std::move(error)};
  };
  const TensorType x{kI8, {2, 3}}, w{kI8, {3, 4}};
  return {
      wrong("dtype", {}, {{DType::kU8, {2, 3}}, w}, "x is u8"),
      wrong("w_dtype", {}, {x, {DType::kF32, {3, 4}}}, "w is f32"),
      wrong("w_rank", {}, {x, {kI8, {2, 3, 4}}}, "w must have rank 2"),
      wrong("inner", {}, {x, {kI8, {4, 3}}}, "3 columns against 4 rows"),
      wrong("bias_dtype", {}, {x, w, {kI8, {4}}}, "bias is i8"),
      wrong("bias", {}, {x, w, {kI32, {3}}}, "bias is i32[3], expected one for each of 4 columns"),
      wrong("x_zero", {.x_zero_point = 128}, {x, w}, "x_zero_point is 128"),
      wrong("out_zero", {.out_zero_point = -129}, {x, w}, "out_zero_point is -129"),
      wrong("w_zero", {.w_zero_points = {200}}, {x, w}, "a zero point of w is 200"),
      wrong("w_zeros", {.w_zero_points = {1, 2}}, {x, w}, "there are 2 zero points of w"),
      wrong("multiplier", {.multipliers = {1e300}}, {x, w}, "is not finite in f32"),
      wrong("multipliers", {.multipliers = {1, 2, 3}}, {x, w}, "there are 3 multipliers"),
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(QMatMul) = {samples, wrong_calls};

}  // namespace rlx
