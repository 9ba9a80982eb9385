#include <cmath>
#include <limits>

#include "rlx/ops/samples.h"
#include "rlx/ops/softmax.h"

namespace rlx {

RLX_USE_OP(Softmax);

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Attrs along(int64_t axis) { return Attrs::of(kSoftmaxOp.fields, SoftmaxAttrs{axis}); }

Sample sample(std::string name, DType dtype, Dims shape, int64_t axis, Draw draw = {}) {
  const int64_t n = shape[size_t(normalize_axis(axis, int64_t(shape.size())))];
  return {.name = std::move(name),
          .attrs = along(axis),
          .operands = {{dtype, std::move(shape), std::move(draw)}},
          .reduction = std::max<int64_t>(n, 1),
          .extra_ulps = 8};
}

std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (const DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const std::string name(to_string(t));
    all.push_back(sample(name + "_last", t, {7, 13}, -1));
    all.push_back(sample(name + "_first", t, {11, 17}, 0));
    all.push_back(sample(name + "_long", t, {3, 1031}, 1));
    Sample special = sample(name + "_special", t, {31, 5}, 1, {.kind = Draw::kSpecial});
    special.grad = GradCheck::kNo;
    all.push_back(special);
    Sample special_column =
        sample(name + "_special_first", t, {5, 37}, 0, {.kind = Draw::kSpecial});
    special_column.grad = GradCheck::kNo;
    all.push_back(special_column);
  }
  const DType t = DType::kF32;
  all.push_back(sample("middle", t, {3, 5, 7}, 1));
  all.push_back(sample("middle_negative", t, {2, 19, 3}, -2));
  all.push_back(sample("first_of_three", DType::kF64, {23, 2, 5}, 0));
  all.push_back(sample("vector", DType::kF64, {16}, 0));
  all.push_back(sample("length1", t, {4, 1}, -1));
  all.push_back(sample("one_element", t, {1}, -1));
  all.push_back(sample("batch0", t, {0, 5}, -1));
  all.push_back(sample("empty_axis", t, {3, 0}, -1));
  all.push_back(sample("large", t, {513, 257}, -1));
  all.push_back(sample("large_columns", t, {129, 515}, 0));
  for (int64_t n : {2, 3, 15, 16, 17, 31, 63, 64, 65, 127, 128, 129}) {
    all.push_back(sample("length" + std::to_string(n), t, {3, n}, -1));
  }
  // Rounding x - m to half an ulp of 120 is as many ulps of the result.
  Sample wide = sample("wide", t, {5, 29}, -1, {.low = -60, .high = 60});
  wide.extra_ulps = 128;
  wide.grad = GradCheck::kNo;
  all.push_back(wide);
  Sample huge = sample("huge", t, {2, 3}, -1,
                       {.kind = Draw::kGiven, .values = {1e30, 1e30, -1e30, 88, 89, 90}});
  huge.grad = GradCheck::kNo;
  all.push_back(huge);
  Sample infinite = sample(
      "infinite", t, {4, 3}, -1,
      {.kind = Draw::kGiven,
       .values = {-kInfinity, -kInfinity, -kInfinity, -kInfinity, 1, 2, kInfinity, 1, 2, 1, 2, 3}});
  infinite.grad = GradCheck::kNo;
  all.push_back(infinite);
  return all;
}

std::vector<WrongCall> wrong_calls() {
  return {
      {"no_operand", along(0), {}, "expected 1 operand, got 0"},
      {"axis", along(2), {{DType::kF32, {2, 3}}}, "axis 2"},
      {"integers", along(0), {{DType::kI32, {2, 3}}}, "x is i32, expected one of"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Softmax) = {samples, wrong_calls};

}  // namespace rlx
