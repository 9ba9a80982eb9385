// Of Sort, ArgSort and TopK.
#include "rlx/ops/sort.h"

#include <cmath>
#include <limits>

#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(ArgSort);
RLX_USE_OP(Sort);
RLX_USE_OP(TopK);

namespace {

constexpr DType kRealDTypes[] = {DType::kBool, DType::kI8,  DType::kI16, DType::kI32, DType::kI64,
                                 DType::kU8,   DType::kU16, DType::kU32, DType::kU64, DType::kF16,
                                 DType::kBF16, DType::kF32, DType::kF64};

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  std::string name;
  DType dtype;
  Dims shape;
  int64_t axis = -1;
  bool down = false;
  int64_t k = 3;  // of TopK, at most the axis
  Draw draw{Draw::kDistinct, -2, 2};
  DType index = DType::kI64;
  GradCheck grad = GradCheck::kYes;
};

// Values with ties, over the whole range of small types.
Draw ties_of(DType t) {
  if (t == DType::kBool) return {Draw::kInteger, 0, 1};
  if (t == DType::kU8) return {Draw::kInteger, 0, 255};
  if (class_of(t) == DTypeClass::kUnsigned) return {Draw::kInteger, 0, 1000};
  if (t == DType::kI8) return {Draw::kInteger, -128, 127};
  return {Draw::kInteger, -100, 100};
}

std::vector<Case> cases() {
  const DType f = DType::kF32;
  std::vector<Case> c;
  for (const DType t : kRealDTypes) {
    const std::string name(to_string(t));
    for (const bool down : {false, true}) {
      const std::string order = down ? "_down" : "_up";
      c.push_back({name + order, t, {3, 41}, -1, down, 5, ties_of(t)});
      c.push_back({name + order + "_long", t, {2, 301}, -1, down, 20, ties_of(t)});
      c.push_back({name + order + "_axis0", t, {67, 3}, 0, down, 4, ties_of(t)});
      for (size_t i = c.size() - 3; i < c.size(); ++i) c[i].grad = GradCheck::kNo;
      if (!is_float(t)) continue;
      c.push_back({name + order + "_special", t, {4, 83}, -1, down, 30, {Draw::kSpecial, -2, 2}});
      c.back().grad = GradCheck::kNo;
      c.push_back({name + order + "_distinct", t, {2, 31}, -1, down, 7});
    }
  }
  for (const bool down : {false, true}) {
    const std::string order = down ? "_down" : "_up";
    const double nan = std::nan("");
    c.push_back({"nan" + order,
                 f,
                 {2, 8},
                 -1,
                 down,
                 5,
                 {.kind = Draw::kGiven,
                  .values = {nan, 0.0, -0.0, kInfinity, -nan, -kInfinity, 0.0, 1, nan, nan, nan,
                             nan, nan, nan, nan, nan}}});
    c.back().grad = GradCheck::kNo;
    c.push_back({"middle" + order, f, {2, 11, 3}, 1, down, 4});
    c.push_back({"negative_axis" + order, f, {2, 11, 3}, -3, down, 2});
    c.push_back({"one" + order, f, {3, 1}, -1, down, 1});
    c.push_back({"two" + order, f, {3, 2}, -1, down, 1});
    c.push_back({"vector" + order, DType::kF64, {17}, 0, down, 17});
    c.push_back({"none" + order, f, {3, 0}, -1, down, 0});
    c.push_back({"no_lines" + order, f, {0, 5}, -1, down, 2});
    c.push_back({"k0" + order, f, {3, 5}, -1, down, 0});
    c.push_back({"large" + order, f, {2, 5003}, -1, down, 300});
    c.push_back({"large_f64" + order, DType::kF64, {1, 4500}, -1, down, 10});
    c.push_back({"large_i64" + order,
                 DType::kI64,
                 {2, 4500},
                 -1,
                 down,
                 700,
                 {Draw::kInteger, -1e15, 1e15}});
    c.back().grad = GradCheck::kNo;
    c.push_back({"large_axis0" + order, f, {700, 5}, 0, down, 9});
    c.push_back({"many_lines" + order, f, {5000, 7}, -1, down, 2});
    for (size_t i = c.size() - 5; i < c.size(); ++i) c[i].grad = GradCheck::kNo;
    for (const DType t : {DType::kI32, DType::kF32}) {
      c.push_back({"index_" + std::string(to_string(t)) + order, f, {3, 19}, -1, down, 4});
      c.back().index = t;
    }
  }
  return c;
}

template <const OpDef& kOp>
std::vector<Sample> sort_samples() {
  std::vector<Sample> all;
  bool stable = true;
  for (const Case& c : cases()) {
    all.push_back({.name = c.name,
                   .attrs = Attrs::of(kOp.fields, SortAttrs{c.axis, c.down, stable, c.index}),
                   .operands = {{c.dtype, c.shape, c.draw}},
                   .grad = is_float(c.dtype) ? c.grad : GradCheck::kNo});
    stable = !stable;
  }
  return all;
}

std::vector<Sample> top_k_samples() {
  std::vector<Sample> all;
  for (const bool sorted : {true, false}) {
    for (const Case& c : cases()) {
      all.push_back(
          {.name = c.name + (sorted ? "" : "_by_place"),
           .attrs = Attrs::of(kTopKOp.fields, TopKAttrs{c.k, c.axis, c.down, sorted, c.index}),
           .operands = {{c.dtype, c.shape, c.draw}},
           .grad = is_float(c.dtype) ? c.grad : GradCheck::kNo});
    }
  }
  return all;
}

template <const OpDef& kOp>
std::vector<WrongCall> wrong_sorts() {
  const auto with = [](SortAttrs a) { return Attrs::of(kOp.fields, a); };
  const TensorType x{DType::kF32, {2, 3}};
  const DType i = DType::kI64;
  return {
      {"operands", with({}), {x, x}, "expected 1 operand, got 2"},
      {"scalar", with({}), {{DType::kF32, {}}}, "axis -1 is out of range for rank 0"},
      {"axis", with({2}), {x}, "axis 2 is out of range for rank 2"},
      {"complex", with({}), {{DType::kC64, {3}}}, "x is c64"},
      {"index", with({-1, false, true, DType::kI16}), {x}, "index_dtype is i16, expected one of"},
      {"index_f32",
       with({-1, false, true, DType::kF32}),
       {{DType::kF32, {1, 1 << 25}}},
       "f32 cannot hold the positions of an axis of size 33554432"},
      {"index_i32",
       with({-1, false, true, DType::kI32}),
       {{DType::kF32, {int64_t(1) << 32}}},
       "i32 cannot hold the positions"},
      {"stable", with({5, true, false, i}), {x}, "axis 5 is out of range"},
  };
}

std::vector<WrongCall> wrong_top_ks() {
  const auto with = [](TopKAttrs a) { return Attrs::of(kTopKOp.fields, a); };
  const TensorType x{DType::kF32, {2, 3}};
  return {
      {"operands", with({}), {x, x}, "expected 1 operand, got 2"},
      {"scalar", with({}), {{DType::kF32, {}}}, "axis -1 is out of range for rank 0"},
      {"k", with({4}), {x}, "k is 4, expected 0 to 3, the size of axis 1"},
      {"k_negative", with({-1}), {x}, "k is -1, expected 0 to 3"},
      {"complex", with({}), {{DType::kC64, {3}}}, "x is c64"},
      {"index", with({1, -1, true, true, DType::kU8}), {x}, "index_dtype is u8, expected one of"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Sort) = {sort_samples<kSortOp>, wrong_sorts<kSortOp>};
RLX_DEFINE_SAMPLES(ArgSort) = {sort_samples<kArgSortOp>, wrong_sorts<kArgSortOp>};
RLX_DEFINE_SAMPLES(TopK) = {top_k_samples, wrong_top_ks};

}  // namespace rlx
