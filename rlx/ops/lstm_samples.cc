#include <cmath>
#include <limits>

#include "rlx/ops/lstm.h"
#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(Lstm);

namespace {

constexpr DType kF32 = DType::kF32, kF64 = DType::kF64;

enum class Form : uint8_t { kFlat, kStacked, kSingle };  // of the weights

struct Case {
  std::string name;
  DType dtype = kF32;
  int64_t batch = 2, steps = 4, input = 3;
  LstmAttrs attrs{.hidden_size = 5};
  std::vector<double> lengths{};
  Form form = Form::kFlat;
  Draw draw{.low = -1, .high = 1};  // of x
  GradCheck grad = GradCheck::kYes;
};

LstmAttrs sized(int64_t hidden, int64_t layers = 1) {
  return {.hidden_size = hidden, .num_layers = layers};
}

LstmAttrs both_ways(int64_t hidden, int64_t layers = 1) {
  return {.hidden_size = hidden, .num_layers = layers, .bidirectional = true};
}

LstmAttrs with_all(LstmAttrs a) {
  a.carry = true;
  a.has_lengths = true;
  return a;
}

void add_dtypes(std::vector<Case>& all) {
  for (const DType t : {DType::kF16, DType::kBF16, kF32, kF64}) {
    const std::string name(to_string(t));
    all.push_back({name, t, 3, 5, 4, sized(6)});
    LstmAttrs reverse = sized(7);
    reverse.reverse = true;
    reverse.carry = true;
    all.push_back({name + "_reverse", t, 2, 4, 3, reverse});
    all.push_back({name + "_both", t, 2, 5, 3, both_ways(4)});
    all.push_back({name + "_all", t, 3, 5, 3, with_all(both_ways(3, 3)), {5, 0, 3}});
    all.push_back({name + "_layers", t, 2, 3, 4, sized(5, 2)});
  }
}

void add_forms(std::vector<Case>& all) {
  const auto form = [&](std::string name, int64_t input, const LstmAttrs& a, Form f) {
    Case c{std::move(name), kF64, 2, 3, input, a};
    c.form = f;
    all.push_back(c);
  };
  form("single_weights", 3, sized(2), Form::kSingle);
  form("stacked_one", 3, sized(2), Form::kStacked);
  form("stacked_both", 3, both_ways(2), Form::kStacked);
  form("stacked_layers", 4, both_ways(2, 2), Form::kStacked);
}

void add_lengths(std::vector<Case>& all) {
  LstmAttrs a = sized(3);
  a.has_lengths = true;
  all.push_back({"lengths", kF64, 4, 6, 2, a, {6, 1, 0, 4}});
  a.reverse = true;
  all.push_back({"lengths_reverse", kF64, 3, 5, 2, a, {5, 2, 0}});
  a.num_layers = 2;
  all.push_back({"lengths_layers", kF64, 3, 5, 2, a, {1, 5, 3}});
  // What stands past the end has no influence.
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  Case hidden{"lengths_nan", kF32, 2, 3, 1, with_all(both_ways(2)), {1, 3}};
  hidden.draw = {.kind = Draw::kGiven, .values = {0.5, kNan, kNan, 1, -1, 0.25}};
  hidden.grad = GradCheck::kNo;
  all.push_back(hidden);
}

void add_sizes(std::vector<Case>& all) {
  all.push_back({"batch0", kF32, 0, 3, 2, both_ways(2)});
  LstmAttrs carry = both_ways(3, 2);
  carry.carry = true;
  all.push_back({"steps0", kF32, 2, 0, 2, carry});
  all.push_back({"steps0_half", DType::kBF16, 2, 0, 2, carry});
  all.push_back({"input0", kF32, 2, 3, 0, sized(3)});
  all.push_back({"ones", kF32, 1, 1, 1, sized(1)});
  all.push_back({"one_step", kF32, 5, 1, 7, sized(13)});
  for (const int64_t n : {8, 15, 16, 17, 31, 32, 33}) {
    all.push_back({"hidden" + std::to_string(n), kF32, 2, 2, 3, sized(n)});
  }
  for (const int64_t n : {7, 31, 33, 37, 65}) {
    all.push_back({"batch" + std::to_string(n), kF32, n, 3, 2, sized(9)});
  }
  all.push_back({"long", kF32, 1, 1031, 1, both_ways(2)});
  all.push_back({"large", kF32, 3, 7, 131, sized(67)});
}

// Steps that all threads share, with groups of rows and units that do not come out even.
void add_shared(std::vector<Case>& all) {
  all.push_back({"shared", kF32, 1, 4, 9, sized(371)});
  all.push_back({"shared_rows", kF32, 70, 3, 5, with_all(sized(69)), {}});
  for (int64_t b = 0; b < 70; ++b) all.back().lengths.push_back(double(b % 4));
  all.push_back({"shared_both", kF64, 9, 3, 4, both_ways(88, 2)});
  all.push_back({"shared_half", DType::kBF16, 11, 3, 4, with_all(both_ways(79)), {}});
  for (int64_t b = 0; b < 11; ++b) all.back().lengths.push_back(double(b % 4));
}

// More steps than those whose products with the inputs are kept at once.
void add_blocks(std::vector<Case>& all) {
  LstmAttrs carry = both_ways(31);
  carry.carry = true;
  all.push_back({"blocks", kF32, 33, 300, 2, carry});
  all.push_back({"blocks_shared", kF64, 9, 150, 2, both_ways(104)});
  // Many sums: differences of their results are slow.
  for (size_t i = all.size() - 2; i < all.size(); ++i) all[i].grad = GradCheck::kNo;
}

Sample sample_of(const Case& c) {
  LstmAttrs a = c.attrs;
  const LstmSizes<int64_t> n(a, Dims{c.batch, c.steps, c.input});
  const int64_t blocks = n.blocks(), gates = n.gates();
  // Products of about 1 whatever the size.
  const double bound = 1.5 / std::sqrt(double(std::max<int64_t>(4, n.hidden)));
  const Draw weights{.low = -bound, .high = bound}, state{.low = -1, .high = 1};
  Dims input{n.input_offset(blocks)}, hidden{blocks * gates * n.hidden}, bias{blocks * gates};
  if (c.form != Form::kFlat) {
    input = {gates, c.input};
    hidden = {gates, n.hidden};
    bias = {gates};
  }
  if (c.form == Form::kStacked) {
    for (Dims* shape : {&input, &hidden, &bias}) shape->insert(shape->begin(), blocks);
  }
  Sample s{.name = c.name, .attrs = Attrs::of(kLstmOp.fields, a), .operands = {}, .grad = c.grad};
  s.operands = {{c.dtype, {c.batch, c.steps, c.input}, c.draw},
                {c.dtype, input, weights},
                {c.dtype, hidden, weights},
                {c.dtype, bias, state}};
  const Dims states{blocks, c.batch, n.hidden};
  if (a.carry) {
    s.operands.push_back({c.dtype, states, state});
    s.operands.push_back({c.dtype, states, state});
  }
  if (a.has_lengths) {
    s.operands.push_back({DType::kI64, {c.batch}, {.kind = Draw::kGiven, .values = c.lengths}});
  }
  s.reduction = std::max(c.input, n.output()) + n.hidden;
  // States hand their errors on, but a forget gate halves them; layers add up.
  s.extra_ulps = 16 * double(n.layers);
  s.scale = 2;
  return s;
}

std::vector<Sample> samples() {
  std::vector<Case> all;
  add_dtypes(all);
  add_forms(all);
  add_lengths(all);
  add_sizes(all);
  add_shared(all);
  add_blocks(all);
  std::vector<Sample> result;
  result.reserve(all.size());
  for (const Case& c : all) result.push_back(sample_of(c));
  return result;
}

std::vector<WrongCall> wrong_calls() {
  const TensorType x{kF32, {2, 5, 3}}, w{kF32, {16, 3}}, r{kF32, {16, 4}}, bias{kF32, {16}};
  const TensorType state{kF32, {1, 2, 4}};
  std::vector<WrongCall> all;
  const auto add = [&](std::string name, const LstmAttrs& a, std::vector<TensorType> operands,
                       std::string error) {
    all.push_back(
        {std::move(name), Attrs::of(kLstmOp.fields, a), std::move(operands), std::move(error)});
  };
  LstmAttrs both = both_ways(4), carry = sized(4), limited = sized(4);
  both.reverse = true;
  carry.carry = true;
  limited.has_lengths = true;
  add("no_hidden", sized(0), {x, w, r, bias}, "hidden_size is 0, expected at least 1");
  add("no_layers", sized(4, 0), {x, w, r, bias}, "num_layers is 0, expected at least 1");
  add("overflow", sized(int64_t{1} << 40), {x, w, r, bias}, "size overflow");
  add("directions", both, {x, w, r, bias}, "reverse is for one direction only");
  add("operands", sized(4), {x, w, r}, "expected 4 operands, got 3");
  add("flags", carry, {x, w, r, bias}, "expected 6 operands, got 4");
  add("integers", sized(4), {{DType::kI32, {2, 5, 3}}, w, r, bias}, "x is i32");
  add("rank", sized(4), {{kF32, {5, 3}}, w, r, bias}, "x must have rank 3");
  add("dtypes", sized(4), {x, {kF64, {16, 3}}, r, bias},
      "operands 0 and 1 have the dtypes f32 and f64");
  add("w_ih", sized(4), {x, {kF32, {16, 4}}, r, bias},
      "w_ih is [16, 4], expected [48], [16, 3] or [1, 16, 3]");
  add("w_ih_layers", sized(4, 2), {x, w, r, bias}, "w_ih is [16, 3], expected [112]");
  add("w_hh", sized(4), {x, w, {kF32, {63}}, bias},
      "w_hh is [63], expected [64], [16, 4] or [1, 16, 4]");
  add("w_hh_both", both_ways(4), {x, {kF32, {96}}, r, bias},
      "w_hh is [16, 4], expected [128] or [2, 16, 4]");
  add("bias", sized(4), {x, w, r, {kF32, {32}}}, "bias is [32], expected [16] or [1, 16]");
  add("h0", carry, {x, w, r, bias, {kF32, {2, 4}}, state},
      "h0 must be f32[1, 2, 4], it is f32[2, 4]");
  add("c0", carry, {x, w, r, bias, state, {kF64, {1, 2, 4}}},
      "c0 must be f32[1, 2, 4], it is f64[1, 2, 4]");
  add("lengths", limited, {x, w, r, bias, {DType::kI32, {2}}},
      "lengths must be i64[2], it is i32[2]");
  return all;
}

}  // namespace

RLX_DEFINE_SAMPLES(Lstm) = {samples, wrong_calls};

}  // namespace rlx
