#include "rlx/ops/dequant_matmul.h"

#include <cmath>

#include "rlx/ops/elementwise_samples.h"

namespace rlx {

RLX_USE_OP(DequantMatMul);

namespace {

Sample make(std::string name, DType t, DType packed, Dims x, Dims w,
            MatMulActivations activations = MatMulActivations::kExact) {
  Sample s;
  s.reduction = std::max<int64_t>(x.back(), 1);
  s.scale = 4 * std::sqrt(double(s.reduction));
  s.name = std::move(name);
  s.attrs =
      Attrs::of(kDequantMatMulOp.fields, DequantMatMulAttrs{WeightScheme::kPacked, activations});
  s.operands = {{t, std::move(x)}, {packed, std::move(w)}};
  // Gradients pass the rounding of the activations by convention.
  s.grad = activations == MatMulActivations::kExact ? GradCheck::kYes : GradCheck::kConvention;
  return s;
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  const DType f = DType::kF32;
  for (const DType q : members(dtypes::kPacked)) {
    for (const auto a : {MatMulActivations::kExact, MatMulActivations::kInt8Block}) {
      const std::string p =
          std::string(to_string(q)) + (a == MatMulActivations::kExact ? "" : "_int8");
      const auto add = [&](const std::string& name, DType t, Dims x, Dims w) {
        list.push_back(make(p + "_" + name, t, q, std::move(x), std::move(w), a));
      };
      for (const DType t : {DType::kF16, DType::kBF16, DType::kF32}) {
        add(std::string(to_string(t)), t, {5, 96}, {7, 96});
        add("row_" + std::string(to_string(t)), t, {64}, {11, 64});
        add("batch_" + std::string(to_string(t)), t, {2, 3, 4, 32}, {5, 32});
        add("many_" + std::string(to_string(t)), t, {19, 64}, {13, 64});
      }
      for (const int64_t m : {1, 2, 3, 4, 6, 8, 9}) {
        add(fmt::format("rows{}", m), f, {m, 160}, {9, 160});
      }
      add("weights", f, {3, 2, 32}, {3, 5, 32});
      add("weights_broadcast", f, {2, 1, 3, 32}, {4, 5, 32});
      add("row_times_weights", f, {64}, {3, 5, 64});
      add("no_rows", f, {0, 32}, {3, 32});
      add("no_columns", f, {2, 32}, {0, 32});
      add("empty_sum", f, {2, 0}, {3, 0});
      add("one", f, {1, 32}, {1, 32});
      add("long_sum", f, {2, 4096}, {3, 4096});
      add("large", f, {150, 896}, {101, 896});
      add("few_rows_behind_many", f, {130, 832}, {9, 832});
      add("large_row", f, {1, 1024}, {517, 1024});
    }
  }
  return list;
}

std::vector<WrongCall> wrong_calls() {
  const auto wrong = [](std::string name, TensorType x, TensorType w, std::string error) {
    return WrongCall{std::move(name),
                     Attrs::of(kDequantMatMulOp.fields, DequantMatMulAttrs{}),
                     {std::move(x), std::move(w)},
                     std::move(error)};
  };
  const DType f = DType::kF32, q = DType::kQ8_0;
  return {
      wrong("double", {DType::kF64, {2, 32}}, {q, {3, 32}}, "x is f64"),
      wrong("dense", {f, {2, 32}}, {f, {3, 32}}, "w is f32"),
      wrong("scalar", {f, {}}, {q, {3, 32}}, "x must have at least rank 1"),
      wrong("vector", {f, {2, 32}}, {q, {32}}, "w must have at least rank 2"),
      wrong("inner", {f, {2, 32}}, {q, {3, 64}}, "32 columns against 64"),
      wrong("leading", {f, {2, 2, 32}}, {q, {3, 4, 32}}, "do not broadcast"),
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(DequantMatMul) = {samples, wrong_calls};

}  // namespace rlx
