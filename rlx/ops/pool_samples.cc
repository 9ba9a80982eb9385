#include "rlx/ops/pool.h"

#include <cmath>

#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(Pool);
RLX_USE_OP(MaxPoolSelect);
RLX_USE_OP(MaxPool2dBackward);

namespace {

constexpr DType kDTypes[] = {DType::kF16, DType::kBF16, DType::kF32, DType::kF64};
constexpr PoolKind kKinds[] = {PoolKind::kMax, PoolKind::kMean, PoolKind::kSum, PoolKind::kMin,
                               PoolKind::kProd};

struct Geometry {
  std::string name;
  Dims x;
  MaxPoolAttrs attrs;
};

std::vector<Geometry> geometries() {
  return {
      {"halves", {2, 3, 8, 8}, {{2, 2}, {}, {}}},
      {"halves_odd", {1, 2, 7, 9}, {{2, 2}, {2, 2}, {}}},
      {"overlapping", {1, 2, 7, 8}, {{3, 3}, {1, 1}, {}}},
      {"strided_padded", {2, 2, 8, 7}, {{3, 3}, {2, 2}, {1, 1}}},
      {"asymmetric", {1, 2, 6, 5}, {{3, 2}, {2, 1}, {0, 1, 2, 0}}},
      {"gaps", {1, 1, 11, 10}, {{2, 3}, {4, 5}, {}}},
      {"window_in_padding", {1, 1, 3, 3}, {{2, 2}, {2, 2}, {3, 2}}},
      {"whole", {3, 5, 7, 7}, {{7, 7}, {}, {}}},
      {"one_cell", {1, 1, 1, 1}, {{1, 1}, {}, {}}},
      {"line", {2, 3, 17}, {{3}, {2}, {1}}},
      {"line_halves", {2, 3, 37}, {{2}, {2}, {}}},
      {"volume", {1, 2, 4, 5, 6}, {{2, 3, 2}, {2, 1, 2}, {1, 1, 0}}},
      {"batch0", {0, 2, 4, 4}, {{2, 2}, {}, {}}},
  };
}

const Geometry kLarge{"large", {8, 16, 28, 30}, {{2, 2}, {2, 2}, {}}};

PoolAttrs pool_attrs(PoolKind kind, const MaxPoolAttrs& g, bool count_include_pad = true) {
  return {kind, g.kernel_size, g.stride, g.padding, count_include_pad};
}

MaxPoolAttrs filled(MaxPoolAttrs a) {
  if (a.stride.empty()) a.stride = a.kernel_size;
  default_padding(a.padding, int64_t(a.kernel_size.size()));
  return a;
}

Dims result_of(const Geometry& g) {
  const Shape x(std::span<const int64_t>(g.x));
  return window_result(x, x[1], pool_window(filled(g.attrs))).static_dims();
}

Sample pool_sample(std::string name, DType dtype, const Geometry& g, const PoolAttrs& a) {
  const int64_t area = num_elements(a.kernel_size);
  // Distinct values: a max or min has a derivative. Factors near 1 keep long products in range.
  const Draw draw = a.kind == PoolKind::kProd ? Draw{.low = -1.4, .high = 1.4}
                                              : Draw{.kind = Draw::kDistinct, .low = -2, .high = 2};
  return {.name = std::move(name),
          .attrs = Attrs::of(kPoolOp.fields, a),
          .operands = {{dtype, g.x, draw}},
          .reduction = area,
          .scale = a.kind == PoolKind::kSum ? 2 * std::sqrt(double(area)) : 1};
}

std::vector<Sample> samples_pool() {
  std::vector<Sample> all;
  for (const PoolKind kind : kKinds) {
    const std::string name(enum_name(kind));
    for (const DType t : kDTypes) {
      all.push_back(pool_sample(name + "_" + std::string(to_string(t)), t, {"", {2, 3, 7, 8}, {}},
                                pool_attrs(kind, {{3, 2}, {2, 2}, {1, 0}})));
    }
    for (const Geometry& g : geometries()) {
      const DType t = kind == PoolKind::kProd ? DType::kF64 : DType::kF32;
      all.push_back(pool_sample(name + "_" + g.name, t, g, pool_attrs(kind, g.attrs)));
      // Differences of infinities say nothing.
      const bool extreme = kind == PoolKind::kMax || kind == PoolKind::kMin;
      if (extreme && g.name == "window_in_padding") all.back().grad = GradCheck::kNo;
    }
    all.push_back(
        pool_sample(name + "_large", DType::kF32, kLarge, pool_attrs(kind, kLarge.attrs)));
  }
  for (const Geometry& g : geometries()) {
    all.push_back(pool_sample("MeanInside_" + g.name, DType::kF32, g,
                              pool_attrs(PoolKind::kMean, g.attrs, false)));
  }
  for (const DType t : {DType::kF16, DType::kBF16, DType::kF64}) {
    all.push_back(pool_sample("MeanInside_" + std::string(to_string(t)), t, {"", {1, 2, 9, 9}, {}},
                              pool_attrs(PoolKind::kMean, {{3, 3}, {2, 2}, {1, 1}}, false)));
  }
  for (const PoolKind kind : {PoolKind::kMax, PoolKind::kMin}) {
    const std::string name(enum_name(kind));
    for (const DType t : kDTypes) {
      Sample special =
          pool_sample(name + "_special_" + std::string(to_string(t)), t, {"", {1, 2, 9, 21}, {}},
                      pool_attrs(kind, {{2, 3}, {1, 2}, {1, 1}}));
      special.operands[0].draw = {.kind = Draw::kSpecial};
      special.grad = GradCheck::kNo;
      all.push_back(special);
    }
    Sample ties = pool_sample(name + "_ties", DType::kF64, {"", {1, 2, 8, 8}, {}},
                              pool_attrs(kind, {{3, 3}, {2, 2}, {1, 1}}));
    ties.operands[0].draw = {.kind = Draw::kInteger, .low = 0, .high = 2};
    ties.grad = GradCheck::kConvention;
    all.push_back(ties);
  }
  Sample zeros = pool_sample("Prod_zeros", DType::kF64, {"", {1, 2, 6, 6}, {}},
                             pool_attrs(PoolKind::kProd, {{2, 3}, {1, 1}, {}}));
  zeros.operands[0].draw = {.kind = Draw::kInteger, .low = -1, .high = 1};
  all.push_back(zeros);
  return all;
}

// Operands (x, second), where `second` has the shape of x or of the result.
Sample max_sample(const OpDef& op, std::string name, DType dtype, const Geometry& g, bool select) {
  return {
      .name = std::move(name),
      .attrs = Attrs::of(op.fields, g.attrs),
      .operands = {{dtype, g.x, {.kind = Draw::kDistinct}}, {dtype, select ? g.x : result_of(g)}},
      .reduction = select ? 1 : num_elements(g.attrs.kernel_size),
      .scale = select ? 0.0 : 4.0};
}

std::vector<Sample> samples_max(const OpDef& op, bool select) {
  std::vector<Sample> all;
  const Geometry overlapping{"", {1, 2, 7, 9}, {{3, 3}, {1, 2}, {1, 1}}};
  for (const DType t : kDTypes) {
    const std::string name(to_string(t));
    all.push_back(max_sample(op, name, t, overlapping, select));
    Sample special = max_sample(op, name + "_special", t, overlapping, select);
    special.operands[0].draw = {.kind = Draw::kSpecial};
    special.grad = GradCheck::kNo;
    all.push_back(special);
  }
  for (const Geometry& g : geometries()) {
    all.push_back(max_sample(op, g.name, DType::kF32, g, select));
  }
  all.push_back(max_sample(op, "large", DType::kF32, kLarge, select));
  Sample ties = max_sample(op, "ties", DType::kF64, overlapping, select);
  ties.operands[0].draw = {.kind = Draw::kInteger, .low = 0, .high = 2};
  ties.grad = GradCheck::kConvention;
  all.push_back(ties);
  return all;
}

std::vector<Sample> samples_select() { return samples_max(kMaxPoolSelectOp, true); }
std::vector<Sample> samples_backward() { return samples_max(kMaxPool2dBackwardOp, false); }

std::vector<WrongCall> wrong_pool() {
  const auto with = [](Dims kernel, Dims stride, Dims padding) {
    return Attrs::of(kPoolOp.fields, PoolAttrs{PoolKind::kMax, std::move(kernel), std::move(stride),
                                               std::move(padding), true});
  };
  const TensorType x{DType::kF32, {1, 2, 5, 5}};
  return {
      {"operands", with({2, 2}, {}, {}), {}, "expected 1 operand, got 0"},
      {"integers", with({2, 2}, {}, {}), {{DType::kI32, {1, 2, 5, 5}}}, "x is i32"},
      {"rank", with({2, 2}, {}, {}), {{DType::kF32, {5, 5}}}, "1 to 3 spatial axes"},
      {"kernel_length", with({2}, {}, {}), {x}, "kernel_size has 1 values, expected 2"},
      {"kernel0",
       with({2, 0}, {1, 1}, {}),
       {x},
       "kernel_size has the value 0, expected at least 1"},
      {"stride", with({2, 2}, {2}, {}), {x}, "stride has 1 values, expected 2"},
      {"padding", with({2, 2}, {}, {1, 2, 3}), {x}, "padding has 3 values, expected 4"},
      {"padding_huge",
       with({2, 2}, {}, {0, int64_t{1} << 40}),
       {x},
       "padding has the value 1099511627776, expected at most 1048576"},
      {"kernel_huge",
       with({1 << 20, 17}, {1, 1}, {1 << 20, 17}),
       {x},
       "kernel_size [1048576, 17] covers 17825792 cells, expected at most 16777216"},
      {"window",
       with({2, 7}, {}, {0, 1, 0, 0}),
       {x},
       "a window that spans 7 cells does not fit spatial axis 1 of padded size 6"},
  };
}

std::vector<WrongCall> wrong_select() {
  const Attrs halves = Attrs::of(kMaxPoolSelectOp.fields, MaxPoolAttrs{{2, 2}, {}, {}});
  const TensorType x{DType::kF32, {1, 2, 4, 4}};
  return {
      {"operands", halves, {x}, "expected 2 operands, got 1"},
      {"t", halves, {x, {DType::kF32, {1, 2, 2, 2}}}, "operands 0 and 1 must have one type"},
  };
}

std::vector<WrongCall> wrong_backward() {
  const Attrs halves = Attrs::of(kMaxPool2dBackwardOp.fields, MaxPoolAttrs{{2, 2}, {}, {}});
  const TensorType x{DType::kF32, {1, 2, 4, 4}};
  return {
      {"operands", halves, {x}, "expected 2 operands, got 1"},
      {"dy", halves, {x, x}, "dy is [1, 2, 4, 4], but pooling [1, 2, 4, 4] gives [1, 2, 2, 2]"},
      {"dtypes", halves, {x, {DType::kF16, {1, 2, 2, 2}}}, "have the dtypes f32 and f16"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Pool) = {samples_pool, wrong_pool};
RLX_DEFINE_SAMPLES(MaxPoolSelect) = {samples_select, wrong_select};
RLX_DEFINE_SAMPLES(MaxPool2dBackward) = {samples_backward, wrong_backward};

}  // namespace rlx
