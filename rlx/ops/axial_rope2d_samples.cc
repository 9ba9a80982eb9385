#include "rlx/ops/axial_rope2d.h"

#include <algorithm>

#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(AxialRope2d);

namespace {

constexpr AxialRepeat kTile = AxialRepeat::kTile;

struct Case {
  std::string name;
  DType dtype;
  Dims lead;
  AxialRope2dAttrs attrs;
};

std::vector<Case> cases() {
  const DType f = DType::kF32;
  std::vector<Case> c;
  for (const DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const std::string name(to_string(t));
    c.push_back({name, t, {2}, {3, 2, 8, 2}});
    c.push_back({name + "_narrow", t, {1}, {2, 5, 4, 3}});
    c.push_back({name + "_wide", t, {2}, {3, 2, 64, 2}});
    c.push_back({name + "_odd", t, {1}, {2, 3, 52, 3, 100}});
    c.push_back({name + "_interleave", t, {2}, {3, 2, 12, 1, 10000, 3}});
    c.push_back({name + "_tile", t, {2}, {3, 2, 12, 1, 10000, 3, kTile, 2}});
  }
  c.push_back({"repeat0", f, {2}, {3, 2, 8, 2, 10000, 0}});
  c.push_back({"tile_once", f, {2}, {3, 2, 8, 2, 10000, 1, kTile}});
  c.push_back({"exclude", f, {2}, {3, 2, 8, 2, 50, 1, AxialRepeat::kInterleave, 5}});
  c.push_back({"column", f, {2}, {1, 7, 8, 2}});
  c.push_back({"row", f, {2}, {7, 1, 8, 2}});
  c.push_back({"smallest", f, {1}, {1, 1, 4, 1}});
  c.push_back({"theta_small", DType::kF64, {1}, {5, 4, 16, 1, 0.5}});
  c.push_back({"no_batch", f, {0}, {3, 2, 8, 2}});
  c.push_back({"rank2", f, {}, {3, 2, 8, 2}});
  c.push_back({"rank4", f, {2, 3}, {3, 2, 8, 2, 10000, 2, kTile, 1}});
  c.push_back({"large", f, {2}, {16, 13, 64, 4, 10000, 1, AxialRepeat::kInterleave, 3}});
  return c;
}

std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (const Case& c : cases()) {
    const AxialRope2dAttrs& a = c.attrs;
    Dims x = c.lead;
    x.push_back(a.end_x * a.end_y * std::max<int64_t>(a.repeat_factor, 1) + a.num_k_exclude);
    x.push_back(a.num_heads * a.head_dim);
    all.push_back({.name = c.name,
                   .attrs = Attrs::of(kAxialRope2dOp.fields, a),
                   .operands = {{c.dtype, x}},
                   .reduction = 2,
                   .scale = 4});
  }
  return all;
}

std::vector<WrongCall> wrong_calls() {
  const auto with = [](AxialRope2dAttrs a) { return Attrs::of(kAxialRope2dOp.fields, a); };
  const DType f = DType::kF32;
  const TensorType x{f, {2, 6, 16}};
  const AxialRepeat in_turn = AxialRepeat::kInterleave;
  const auto huge = int64_t(1) << 62;
  return {
      {"operands", with({3, 2, 8, 2}), {}, "expected 1 operand, got 0"},
      {"integers", with({3, 2, 8, 2}), {{DType::kI32, {2, 6, 16}}}, "x is i32"},
      {"rank", with({3, 2, 8, 2}), {{f, {16}}}, "x must have at least rank 2"},
      {"grid", with({3, 0, 8, 2}), {x}, "the grid is 3 x 0"},
      {"head_dim", with({3, 2, 6, 2}), {x}, "head_dim is 6, expected a positive multiple of 4"},
      {"no_head_dim", with({3, 2}), {x}, "head_dim is 0"},
      {"num_heads", with({3, 2, 8}), {x}, "num_heads is 0"},
      {"theta", with({3, 2, 8, 2, 0}), {x}, "theta is 0"},
      {"repeat_factor", with({3, 2, 8, 2, 10, -1}), {x}, "repeat_factor is -1"},
      {"exclude", with({3, 2, 8, 2, 10, 1, in_turn, -1}), {x}, "num_k_exclude is -1"},
      {"width", with({3, 2, 8, 3}), {x}, "the last axis of x [2, 6, 16] is 16, not num_heads"},
      {"tokens", with({3, 3, 8, 2}), {x}, "has 6 tokens, not end_x * end_y"},
      {"overflow", with({huge, huge, 8, 2}), {x}, "size overflow"},
      {"symbolic", with({3, 2, 8, 2}), {{f, {2, Dim::symbol("n"), 16}}}, "has n tokens, not"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(AxialRope2d) = {samples, wrong_calls};

}  // namespace rlx
