#include "rlx/ops/rope.h"

#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(Rope);
RLX_USE_OP(RopeBackward);

namespace {

constexpr DType kIndexTypes[] = {DType::kI8, DType::kI16, DType::kI32, DType::kI64,
                                 DType::kU8, DType::kU16, DType::kU32, DType::kU64};
constexpr RopeLayout kBSHD = RopeLayout::kBSHD, kBHSD = RopeLayout::kBHSD,
                     kPacked = RopeLayout::kPacked;
constexpr RopeStyle kNeoX = RopeStyle::kNeoX, kGptJ = RopeStyle::kGptJ;

struct Case {
  std::string name;
  DType dtype;
  Dims x, table;
  RopeAttrs attrs{};
  std::optional<Dims> positions{};
  DType position_type = DType::kI64;
  std::optional<DType> table_type{};
};

std::vector<Case> cases() {
  const DType f = DType::kF32;
  std::vector<Case> c;
  for (const DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const std::string name(to_string(t));
    c.push_back({name, t, {2, 3, 2, 16}, {5, 8}});
    c.push_back({name + "_pairs", t, {2, 3, 2, 16}, {5, 8}, {.style = kGptJ}});
    c.push_back({name + "_odd", t, {1, 5, 3, 26}, {5, 13}});
    c.push_back({name + "_odd_pairs", t, {1, 5, 3, 26}, {5, 13}, {.style = kGptJ}});
    c.push_back({name + "_wide", t, {1, 2, 2, 128}, {2, 64}});
    c.push_back({name + "_wide_pairs", t, {1, 2, 2, 128}, {2, 64}, {.style = kGptJ}});
    c.push_back({name + "_partial", t, {2, 3, 2, 11}, {3, 3}, {.n_rot = 6, .layout = kBHSD}});
    c.push_back({name + "_packed", t, {2, 3, 20}, {3, 5}, {10, 10, kNeoX, kPacked}});
    if (size_of(t) != 2) continue;
    c.push_back({name + "_f32_tables", t, {2, 3, 2, 16}, {5, 8}, {}, {}, DType::kI64, f});
    c.push_back({name + "_f32_tables_pairs",
                 t,
                 {2, 3, 2, 26},
                 {5, 13},
                 {.style = kGptJ},
                 {},
                 DType::kI64,
                 f});
  }
  for (const DType t : kIndexTypes) {
    c.push_back(
        {"positions_" + std::string(to_string(t)), f, {2, 3, 2, 8}, {7, 4}, {}, Dims{2, 3}, t});
    c.push_back({"start_" + std::string(to_string(t)), f, {2, 3, 2, 8}, {10, 4}, {}, Dims{}, t});
  }
  c.push_back({"packed", f, {2, 3, 24}, {3, 4}, {.head_dim = 8, .layout = kPacked}});
  c.push_back(
      {"packed_rank2", f, {3, 24}, {3, 4}, {.head_dim = 8, .style = kGptJ, .layout = kPacked}});
  c.push_back({"packed_leads", f, {2, 2, 3, 16}, {3, 2}, {8, 4, kGptJ, kPacked}, Dims{2, 3}});
  c.push_back({"heads_first", f, {2, 5, 3, 8}, {4, 4}, {8, 8, kNeoX, kBHSD}});
  c.push_back({"heads_first_positions", f, {2, 5, 3, 8}, {4, 4}, {8, 8, kGptJ, kBHSD}, Dims{2, 3}});
  c.push_back({"heads_first_start", f, {2, 5, 3, 8}, {9, 4}, {8, 8, kGptJ, kBHSD}, Dims{}});
  c.push_back({"explicit", f, {2, 5, 3, 8}, {5, 4}, {8, 4, kNeoX, kBSHD}, Dims{5}});
  c.push_back({"rank3", f, {5, 3, 8}, {5, 4}, {8, 8, kNeoX, kBSHD}});
  c.push_back({"rank5", f, {2, 3, 4, 2, 6}, {9, 3}, {6, 6, kNeoX, kBSHD}, Dims{3, 4}});
  c.push_back({"wide_table", f, {1, 3, 2, 8}, {4, 9}});
  c.push_back({"wide_table_partial", f, {1, 3, 2, 8}, {4, 9}, {.n_rot = 4}, Dims{3}});
  c.push_back({"flat_table", f, {1, 3, 2, 8}, {20}});
  c.push_back({"flat_table_positions", DType::kF64, {2, 3, 2, 8}, {20}, {}, Dims{2, 3}});
  c.push_back({"f64_positions", DType::kF64, {2, 3, 2, 8}, {6, 5}, {.style = kGptJ}, Dims{3}});
  c.push_back({"f64_start", DType::kF64, {2, 3, 2, 8}, {9, 4}, {.n_rot = 6}, Dims{}});
  c.push_back({"no_batch", f, {0, 3, 2, 8}, {3, 4}});
  c.push_back({"no_tokens", f, {2, 0, 2, 8}, {3, 4}, {}, Dims{2, 0}});
  c.push_back({"no_heads", f, {2, 3, 0, 8}, {3, 4}});
  c.push_back({"no_heads_packed", f, {2, 3, 0}, {3, 4}, {.head_dim = 8, .layout = kPacked}});
  c.push_back({"smallest", f, {1, 1, 1, 2}, {1, 1}});
  c.push_back({"large", f, {2, 61, 8, 64}, {64, 32}, {}, Dims{2, 61}});
  c.push_back({"large_heads_first", f, {2, 8, 61, 64}, {64, 32}, {64, 32, kGptJ, kBHSD}, Dims{61}});
  return c;
}

template <const OpDef& kOp>
std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (const Case& c : cases()) {
    const DType table = c.table_type.value_or(c.dtype);
    Sample s{.name = c.name,
             .attrs = Attrs::of(kOp.fields, c.attrs),
             .operands = {{c.dtype, c.x}, {table, c.table}, {table, c.table}},
             .reduction = 2,
             .scale = 4};
    if (c.positions) {
      // Negative ones count from the end; a start leaves room for the tokens.
      const bool is_signed = class_of(c.position_type) == DTypeClass::kSigned;
      const int64_t r = c.attrs.n_rot ? c.attrs.n_rot / 2 : 4;
      const int64_t rows = c.table.size() == 1 ? c.table[0] / r : c.table[0];
      const int64_t room = c.positions->empty() ? 3 : 0;
      const double low = is_signed ? -double(rows) : 0;
      s.operands.push_back(
          {c.position_type, *c.positions, {Draw::kInteger, low, double(rows - 1 - room)}});
    }
    all.push_back(std::move(s));
  }
  return all;
}

template <const OpDef& kOp>
std::vector<WrongCall> wrong_calls() {
  const auto with = [](RopeAttrs a) { return Attrs::of(kOp.fields, a); };
  const DType f = DType::kF32;
  const TensorType x{f, {2, 3, 4, 8}}, t{f, {3, 4}}, i{DType::kI64, {2, 3}};
  return {
      {"operands", with({}), {x, t}, "expected 3 to 4 operands, got 2"},
      {"integers", with({}), {{DType::kI32, {2, 3, 4, 8}}, t, t}, "x is i32"},
      {"rank1", with({8, 8, kNeoX, kPacked}), {{f, {8}}, t, t}, "x must have at least rank 2"},
      {"rank2", with({}), {{f, {3, 8}}, t, t}, "x must have at least rank 3"},
      {"head_dim", with({4}), {x, t, t}, "is 8, not head_dim = 4"},
      {"packed_head_dim", with({5, 4, kNeoX, kPacked}), {{f, {3, 8}}, t, t}, "no multiple of"},
      {"packed_open",
       with({.layout = kPacked}),
       {{f, {3, 8}}, t, t},
       "head_dim is 0, expected a positive size"},
      {"n_rot_odd", with({.n_rot = 3}), {x, t, t}, "n_rot is 3, expected an even number"},
      {"n_rot_large", with({.n_rot = 10}), {x, t, t}, "from 2 to head_dim = 8"},
      {"narrow_table", with({}), {x, {f, {3, 3}}, {f, {3, 3}}}, "less than n_rot / 2 = 4"},
      {"flat_table", with({}), {x, {f, {13}}, {f, {13}}}, "no multiple of n_rot / 2 = 4"},
      {"table_rank", with({}), {x, {f, {1, 3, 4}}, {f, {1, 3, 4}}}, "cos has the shape [1, 3, 4]"},
      {"short_table", with({}), {x, {f, {2, 4}}, {f, {2, 4}}}, "2 rows for 3 tokens"},
      {"sin", with({}), {x, t, {f, {4, 4}}}, "operands 1 and 2 must have one type"},
      {"table_dtype", with({}), {x, {DType::kF64, {3, 4}}, t}, "cos is f64 beside x of f32"},
      {"positions",
       with({}),
       {x, t, t, {DType::kI64, {2, 4}}},
       "expected [], [3] or the last axes"},
      {"float_positions", with({}), {x, t, t, {f, {2, 3}}}, "position_ids is f32"},
      {"position_rank",
       with({}),
       {x, t, t, {DType::kI64, {1, 2, 3}}},
       "position_ids has the shape"},
  };
}

}  // namespace

RLX_DEFINE_SAMPLES(Rope) = {samples<kRopeOp>, wrong_calls<kRopeOp>};
RLX_DEFINE_SAMPLES(RopeBackward) = {samples<kRopeBackwardOp>, wrong_calls<kRopeBackwardOp>};

}  // namespace rlx
