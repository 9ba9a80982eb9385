#include "rlx/ops/reduce.h"

#include <cmath>

#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(Reduce);

namespace {

constexpr DType kAllDTypes[] = {
#define RLX_DTYPE(E, name, bytes, cls, T) DType::E,
#include "rlx/base/dtypes.def"
};

bool is_extremum(ReduceKind kind) { return kind == ReduceKind::kMax || kind == ReduceKind::kMin; }

bool accepts(ReduceKind kind, DType t) {
  switch (kind) {
    case ReduceKind::kSum:
    case ReduceKind::kProd:
      return t != DType::kBool;
    case ReduceKind::kMean:
      return is_differentiable(t);
    case ReduceKind::kMax:
    case ReduceKind::kMin:
      return !is_complex(t);
    case ReduceKind::kAnd:
    case ReduceKind::kOr:
      return t == DType::kBool;
  }
  return false;
}

Draw draw_for(ReduceKind kind, DType t, int64_t length) {
  if (t == DType::kBool) return {Draw::kInteger, 0, 1};
  if (is_integer(t)) return {Draw::kInteger, class_of(t) == DTypeClass::kSigned ? -100. : 0., 120};
  // Products near 1, so that long ones neither vanish nor overflow.
  if (kind == ReduceKind::kProd && length > 8) return {Draw::kUniform, 0.9, 1.1};
  if (is_extremum(kind)) return {Draw::kDistinct, -3, 3};
  return {Draw::kUniform, -2, 2};
}

Sample make(std::string name, ReduceKind kind, DType t, Dims shape, std::vector<int64_t> axes,
            bool keep_dims = false) {
  int64_t length = 1;
  for (const int64_t a : axes) {
    const size_t axis = size_t(a < 0 ? a + int64_t(shape.size()) : a);
    length *= std::max<int64_t>(shape[axis], 1);
  }
  Sample s;
  s.name = std::move(name);
  s.attrs = Attrs::of(kReduceOp.fields, ReduceAttrs{kind, std::move(axes), keep_dims});
  s.operands = {{t, std::move(shape), draw_for(kind, t, length)}};
  s.grad = is_differentiable(t) ? GradCheck::kYes : GradCheck::kNo;
  if (!is_extremum(kind)) s.reduction = length;
  if (kind == ReduceKind::kSum) s.scale = 4 * std::sqrt(double(length));
  if (kind == ReduceKind::kMean) s.scale = 4 / std::sqrt(double(length));
  return s;
}

// Values given one by one: ties, zeros, special numbers.
Sample given(std::string name, ReduceKind kind, DType t, Dims shape, std::vector<int64_t> axes,
             std::vector<double> values, GradCheck grad) {
  Sample s = make(std::move(name), kind, t, std::move(shape), std::move(axes));
  s.operands[0].draw = {Draw::kGiven, 0, 0, std::move(values)};
  s.grad = grad;
  return s;
}

void add_shapes(std::vector<Sample>& s, ReduceKind kind, DType t) {
  const std::string prefix = std::string(enum_name(kind)) + "_" + std::string(to_string(t)) + "_";
  const auto add = [&](const char* name, Dims shape, std::vector<int64_t> axes, bool keep) {
    s.push_back(make(prefix + name, kind, t, std::move(shape), std::move(axes), keep));
  };
  add("scalar", {}, {}, false);
  add("no_axes", {3, 4}, {}, false);
  add("rows", {5, 7}, {1}, false);
  add("rows_keep", {5, 7}, {-1}, true);
  add("columns", {7, 5}, {0}, false);
  add("all", {3, 5, 2}, {0, 1, 2}, false);
  add("middle", {3, 5, 4}, {1}, true);
  add("outer_and_inner", {3, 4, 5}, {2, 0}, false);
  add("three_of_four", {2, 3, 4, 5}, {0, 2, 3}, false);
  add("two_of_four", {2, 3, 4, 5}, {1, 3}, true);
  add("size_one", {4, 1}, {1}, false);
  add("empty_axis", {3, 0}, {1}, false);
  add("empty_result", {0, 3}, {1}, false);
  add("long_row", {3, 1031}, {1}, false);
  add("long_column", {1031, 3}, {0}, false);
}

std::vector<Sample> samples() {
  std::vector<Sample> s;
  for (size_t k = 0; k < kEnumCount<ReduceKind>; ++k) {
    const auto kind = ReduceKind(k);
    for (const DType t : kAllDTypes) {
      if (!accepts(kind, t)) continue;
      const std::string name = std::string(enum_name(kind)) + "_" + std::string(to_string(t));
      s.push_back(make(name, kind, t, {5, 13}, {1}));
      s.push_back(make(name + "_columns", kind, t, {13, 5}, {0}, true));
      if (!is_differentiable(t)) s.push_back(make(name + "_none", kind, t, {3, 0}, {1}));
    }
    add_shapes(s, kind,
               kind == ReduceKind::kAnd || kind == ReduceKind::kOr ? DType::kBool : DType::kF32);
  }
  const ReduceKind sum = ReduceKind::kSum, max = ReduceKind::kMax, min = ReduceKind::kMin,
                   prod = ReduceKind::kProd;
  for (const DType t : {DType::kF16, DType::kBF16, DType::kF64}) {
    const std::string suffix = "_" + std::string(to_string(t));
    s.push_back(make("long_row" + suffix, sum, t, {2, 4099}, {1}));
    s.push_back(make("long_column" + suffix, sum, t, {517, 70}, {0}));
    s.push_back(make("outer_and_inner" + suffix, sum, t, {67, 5, 9}, {0, 2}));
    s.push_back(make("max_long_row" + suffix, max, t, {2, 517}, {1}));
  }
  s.push_back(make("large", sum, DType::kF32, {300, 517}, {1}));
  s.push_back(make("large_columns", sum, DType::kF32, {517, 300}, {0}));
  s.push_back(make("large_all", sum, DType::kF32, {70001}, {0}));
  const double inf = INFINITY;
  s.push_back(
      given("max_ties", max, DType::kF32, {2, 3}, {1}, {1, 1, 0, 2, 2, 2}, GradCheck::kConvention));
  s.push_back(
      given("min_ties", min, DType::kF32, {2, 3}, {1}, {1, 1, 4, 2, 2, 2}, GradCheck::kConvention));
  for (const DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const std::string suffix = "_" + std::string(to_string(t));
    const std::vector<double> v = {1, NAN, 0, -inf, 5, -inf, inf, -2, 3, -0.0, 0.0, -0.0};
    s.push_back(given("max_special" + suffix, max, t, {4, 3}, {1}, v, GradCheck::kNo));
    s.push_back(given("min_special" + suffix, min, t, {4, 3}, {1}, v, GradCheck::kNo));
    s.push_back(given("max_special_columns" + suffix, max, t, {3, 4}, {0}, v, GradCheck::kNo));
    s.push_back(given("min_special_columns" + suffix, min, t, {3, 4}, {0}, v, GradCheck::kNo));
    s.push_back(given("sum_special" + suffix, sum, t, {4, 3}, {1}, v, GradCheck::kNo));
  }
  s.push_back(given("prod_one_zero", prod, DType::kF64, {2, 3}, {1}, {2, 0, 3, 0, 5, -1.5},
                    GradCheck::kYes));
  s.push_back(given("prod_two_zeros", prod, DType::kF64, {2, 4}, {1}, {2, 0, 0, 3, 0, 0, 0, 1},
                    GradCheck::kYes));
  s.push_back(given("prod_zeros_outer", prod, DType::kF64, {3, 1, 2}, {0, 2}, {2, 0, 3, 1.5, -1, 2},
                    GradCheck::kYes));
  return s;
}

std::vector<WrongCall> wrong_calls() {
  const auto wrong = [](std::string name, ReduceAttrs attrs, DType t, std::string error) {
    return WrongCall{std::move(name),
                     Attrs::of(kReduceOp.fields, std::move(attrs)),
                     {{t, {2, 3}}},
                     std::move(error)};
  };
  using K = ReduceKind;
  return {
      wrong("twice", {K::kSum, {1, -1}}, DType::kF32, "axis 1 is reduced twice"),
      wrong("range", {K::kSum, {2}}, DType::kF32, "axis 2 is out of range for rank 2"),
      wrong("mean_int", {K::kMean, {0}}, DType::kI32, "Mean does not reduce i32"),
      wrong("sum_bool", {K::kSum, {0}}, DType::kBool, "Sum does not reduce bool"),
      wrong("max_complex", {K::kMax, {0}}, DType::kC64, "Max does not reduce c64"),
      wrong("and_float", {K::kAnd, {0}}, DType::kF32, "And does not reduce f32"),
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Reduce) = {samples, wrong_calls};

}  // namespace rlx
