#include <algorithm>
#include <cmath>

#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(MatMul);

namespace {

Sample make(std::string name, DType t, Dims x, Dims y) {
  const int64_t k = std::max<int64_t>(x.back(), 1);
  Draw draw;
  if (is_integer(t)) {
    draw = {Draw::kInteger, class_of(t) == DTypeClass::kSigned ? -100. : 0., 110};
  }
  Sample s;
  s.name = std::move(name);
  s.attrs = Attrs::of(kMatMulOp.fields, NoAttrs{});
  s.operands = {{t, std::move(x), draw}, {t, std::move(y), draw}};
  s.grad = is_differentiable(t) ? GradCheck::kYes : GradCheck::kNo;
  s.reduction = k * (is_complex(t) ? 2 : 1);
  s.scale = 4 * std::sqrt(double(s.reduction));
  return s;
}

std::vector<Sample> samples() {
  std::vector<Sample> s;
  const DType all[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8,
                       DType::kI16, DType::kI32, DType::kI64, DType::kU8,   DType::kU16,
                       DType::kU32, DType::kU64, DType::kC64, DType::kC128};
  for (const DType t : all) {
    const std::string name = std::string(to_string(t));
    s.push_back(make(name, t, {5, 7}, {7, 3}));
    s.push_back(make(name + "_batch", t, {2, 1, 4, 5}, {3, 5, 6}));
    s.push_back(make(name + "_row", t, {9}, {9, 4}));
    s.push_back(make(name + "_column", t, {4, 9}, {9}));
    s.push_back(make(name + "_empty_sum", t, {2, 0}, {0, 3}));
  }
  const DType f = DType::kF32;
  s.push_back(make("dot", f, {17}, {17}));
  s.push_back(make("row_times_batch", f, {5}, {3, 5, 4}));
  s.push_back(make("batch_times_column", f, {2, 3, 5}, {5}));
  s.push_back(make("ones", f, {1, 1}, {1, 1}));
  s.push_back(make("no_rows", f, {0, 3}, {3, 2}));
  s.push_back(make("no_columns", f, {2, 3}, {3, 0}));
  s.push_back(make("no_batch", f, {0, 2, 3}, {3, 2}));
  s.push_back(make("outer", f, {6, 1}, {1, 7}));
  s.push_back(make("shared_right", f, {3, 4, 5}, {5, 6}));
  s.push_back(make("shared_left", f, {4, 5}, {3, 5, 6}));
  s.push_back(make("broadcast_both", f, {2, 1, 3, 4}, {1, 3, 4, 2}));
  s.push_back(make("heads", f, {2, 4, 9, 8}, {2, 4, 8, 9}));
  s.push_back(make("primes", f, {37, 41}, {41, 43}));
  s.push_back(make("one_row", f, {1, 300}, {300, 257}));
  s.push_back(make("one_column", f, {257, 300}, {300, 1}));
  s.push_back(make("long_sum", f, {3, 4099}, {4099, 5}));
  s.push_back(make("large", f, {130, 260}, {260, 190}));
  s.push_back(make("large_f64", DType::kF64, {67, 129}, {129, 70}));
  s.push_back(make("large_f16", DType::kF16, {67, 129}, {129, 70}));
  s.push_back(make("large_i32", DType::kI32, {33, 65}, {65, 34}));
  s.push_back(make("large_c64", DType::kC64, {33, 65}, {65, 34}));
  return s;
}

std::vector<WrongCall> wrong_calls() {
  const auto wrong = [](std::string name, TensorType x, TensorType y, std::string error) {
    return WrongCall{std::move(name),
                     Attrs::of(kMatMulOp.fields, NoAttrs{}),
                     {std::move(x), std::move(y)},
                     std::move(error)};
  };
  const DType t = DType::kF32;
  return {
      wrong("scalar", {t, {}}, {t, {2}}, "the left operand must have at least rank 1"),
      wrong("dtypes", {t, {2, 2}}, {DType::kF64, {2, 2}}, "f32 and f64: cast one of them"),
      wrong("inner", {t, {2, 3}}, {t, {4, 5}}, "cannot multiply [2, 3] by [4, 5]"),
      wrong("inner_vector", {t, {3}}, {t, {4}}, "3 columns against 4 rows"),
      wrong("batch", {t, {2, 2, 3}}, {t, {3, 3, 4}}, "do not broadcast"),
      wrong("bool", {DType::kBool, {2, 2}}, {DType::kBool, {2, 2}}, "the left operand is bool"),
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(MatMul) = {samples, wrong_calls};

}  // namespace rlx
