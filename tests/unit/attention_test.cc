// What the conformance checks of Attention do not say: poison beyond the live lengths, work that
// follows kv_len, masks, packed operands, and memory linear in the lengths.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "hwy/targets.h"
#include "rlx/backend/cpu/cpu.h"
#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/attention.h"
#include "rlx/ops/build.h"
#include "rlx/ops/derive.h"
#include "rlx/runtime/eval.h"
#include "rlx/runtime/session.h"
#include "rlx/transform/grad.h"
#include "rlx/transform/vmap.h"
#include "tests/unit/timing.h"

namespace rlx {

RLX_USE_OP(Attention);
RLX_USE_OP(AttentionBackwardAll);
RLX_USE_OP(AttentionBackward);

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Array numbers(Dims shape, uint32_t seed, DType dtype = DType::kF32) {
  std::vector<float> values(size_t(num_elements(shape)));
  for (float& v : values) {
    seed = seed * 1664525u + 1013904223u;
    v = float(seed >> 8) / float(1 << 23) - 1;
  }
  Array a = Array::from<float>(values, std::move(shape));
  if (dtype == DType::kF32) return a;
  Graph g;
  Builder b(g);
  g.add_output("y", cast(b, input(b, "x", DType::kF32, a.type().shape), dtype));
  return eval(cpu_device(), g, std::array{a})[0];
}

Array lengths(std::vector<int64_t> values) {
  const auto n = int64_t(values.size());
  return Array::from<int64_t>(values, {n});
}

// The op by the reference.
std::vector<reference::Tensor> refer(const OpDef& op, AttentionAttrs a,
                                     const std::vector<Array>& operands) {
  std::vector<reference::Tensor> wide;
  wide.reserve(operands.size());
  for (const Array& x : operands) wide.push_back(reference::widen(x));
  return reference::evaluate(op, Attrs::of(op.fields, a), wide);
}

std::vector<Array> run(const OpDef& op, AttentionAttrs a, const std::vector<Array>& operands) {
  return eval(cpu_device(), op, Attrs::of(op.fields, a), operands);
}

// Elements [begin, end) of axis 1 become NaN in batch entry b.
void poison(Array& a, int64_t b, int64_t begin, int64_t end) {
  const int64_t row = a.num_elements() / a.shape()[0] / a.shape()[1];
  float* p = a.mutable_data<float>().data() + (b * a.shape()[1]) * row;
  std::fill(p + begin * row, p + end * row, kNan);
}

bool all_finite(const Array& a) {
  for (const float v : a.data<float>()) {
    if (!std::isfinite(v)) return false;
  }
  return true;
}

void expect_bits(const std::vector<Array>& got, const std::vector<Array>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(got[i].same_bits(expected[i])) << "result " << i;
  }
}

TEST(Attention, PoisonBeyondTheLengthsHasNoEffect) {
  const std::vector<int64_t> kv = {70, 5}, live = {3, 9};
  Array q = numbers({2, 9, 4, 8}, 1), k = numbers({2, 150, 2, 8}, 2),
        v = numbers({2, 150, 2, 8}, 3);
  Array dy = numbers({2, 9, 4, 8}, 4), bias = numbers({2, 4, 9, 150}, 5);
  AttentionAttrs a;
  a.mask = AttentionMask::kCausal;
  a.has_bias = a.has_kv_len = a.has_q_len = true;
  const auto forward = [&] {
    return run(kAttentionOp, a, {q, k, v, bias, lengths(kv), lengths(live)});
  };
  const auto backward = [&] {
    return run(kAttentionBackwardAllOp, a, {q, k, v, dy, bias, lengths(kv), lengths(live)});
  };
  const auto y = forward(), d = backward();
  for (int64_t b = 0; b < 2; ++b) {
    poison(k, b, kv[size_t(b)], 150);
    poison(v, b, kv[size_t(b)], 150);
    poison(q, b, live[size_t(b)], 9);
    poison(dy, b, live[size_t(b)], 9);
    float* p = bias.mutable_data<float>().data() + b * 4 * 9 * 150;
    for (int64_t r = 0; r < 4 * 9; ++r) {
      const bool row_lives = r % 9 < live[size_t(b)];
      std::fill(p + r * 150 + (row_lives ? kv[size_t(b)] : 0), p + (r + 1) * 150, kNan);
    }
  }
  expect_bits(forward(), y);
  expect_bits(backward(), d);
  for (const Array& x : backward()) EXPECT_TRUE(all_finite(x));
  // Rows from q_len on are 0.
  const auto row = y[0].data<float>().subspan(3 * 4 * 8, 6 * 4 * 8);
  EXPECT_TRUE(std::all_of(row.begin(), row.end(), [](float x) { return x == 0; }));
}

TEST(Attention, MaskedKeysAndRowsWithoutKeysDoNotLeak) {
  Array q = numbers({2, 5, 2, 4}, 1), k = numbers({2, 40, 2, 4}, 2), v = numbers({2, 40, 2, 4}, 3);
  Array dy = numbers({2, 5, 2, 4}, 4);
  Array mask = Array::full(DType::kBool, {2, 40}, 1);
  for (int64_t j = 0; j < 40; ++j) {
    mask.mutable_data<bool>()[size_t(j)] = j % 3 == 0;
    mask.mutable_data<bool>()[size_t(40 + j)] = false;  // the second entry sees nothing
    if (j % 3 != 0) poison(k, 0, j, j + 1);
    if (j % 3 != 0) poison(v, 0, j, j + 1);
  }
  poison(k, 1, 0, 40);
  poison(v, 1, 0, 40);
  poison(q, 1, 0, 5);
  poison(dy, 1, 0, 5);
  AttentionAttrs a;
  a.has_mask = true;
  std::vector<Array> results = run(kAttentionBackwardAllOp, a, {q, k, v, dy, mask});
  results.push_back(run(kAttentionOp, a, {q, k, v, mask})[0]);
  for (const Array& x : results) {
    EXPECT_TRUE(all_finite(x));
    const auto second = x.data<float>().subspan(size_t(x.num_elements() / 2));
    EXPECT_TRUE(std::all_of(second.begin(), second.end(), [](float y) { return y == 0; }));
  }
}

// A key that later rows see does not reach the rows before it, on no tile.
TEST(Attention, CausalRowsDoNotReadLaterKeys) {
  const int64_t n = 67;
  Array q = numbers({1, n, 1, 16}, 1), k = numbers({1, n, 1, 16}, 2), v = numbers({1, n, 1, 16}, 3);
  AttentionAttrs a;
  a.mask = AttentionMask::kCausal;
  const Array y = run(kAttentionOp, a, {q, k, v})[0];
  poison(k, 0, 40, n);
  poison(v, 0, 40, n);
  const Array poisoned = run(kAttentionOp, a, {q, k, v})[0];
  for (size_t i = 0; i < size_t(n * 16); ++i) {
    if (i < 40 * 16) {
      EXPECT_EQ(poisoned.data<float>()[i], y.data<float>()[i]);
    } else {
      EXPECT_TRUE(std::isnan(poisoned.data<float>()[i]));
    }
  }
}

TEST(Attention, MoreQueriesThanKeysLeaveTheFirstRowsEmpty) {
  const Array q = numbers({1, 5, 1, 2}, 1), k = numbers({1, 3, 1, 2}, 2),
              v = numbers({1, 3, 1, 2}, 3);
  AttentionAttrs a;
  a.mask = AttentionMask::kCausal;
  const Array y = run(kAttentionOp, a, {q, k, v})[0];
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(y.data<float>()[i], 0);
  // Row 2 sees key 0 alone.
  EXPECT_FLOAT_EQ(y.data<float>()[4], v.data<float>()[0]);
  EXPECT_FLOAT_EQ(y.data<float>()[5], v.data<float>()[1]);
}

TEST(Attention, LengthsOutOfRangeAreErrorsOfTheRun) {
  const Array q = numbers({2, 3, 1, 2}, 1), k = numbers({2, 4, 1, 2}, 2);
  AttentionAttrs kv, rows;
  kv.has_kv_len = rows.has_q_len = true;
  const auto message = [&](const OpDef& op, const AttentionAttrs& a,
                           const std::vector<Array>& operands, bool reference) -> std::string {
    try {
      if (reference) {
        refer(op, a, operands);
      } else {
        run(op, a, operands);
      }
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kUser);
      return e.message();
    }
    return "no error";
  };
  for (const bool reference : {false, true}) {
    for (const int64_t bad : {int64_t(5), int64_t(-1)}) {
      const std::string expected = fmt::format("kv_len is {}, expected 0 to 4", bad);
      EXPECT_NE(message(kAttentionOp, kv, {q, k, k, lengths({4, bad})}, reference).find(expected),
                std::string::npos);
      EXPECT_NE(message(kAttentionBackwardAllOp, kv, {q, k, k, q, lengths({4, bad})}, reference)
                    .find(expected),
                std::string::npos);
    }
    EXPECT_NE(message(kAttentionOp, rows, {q, k, k, lengths({4, 3})}, reference)
                  .find("q_len is 4, expected 0 to 3"),
              std::string::npos);
  }
}

// A row has the same bits alone, in a longer sequence, in a batch and with its keys split.
TEST(Attention, ARowDoesNotDependOnItsCompany) {
  for (const DType t : {DType::kF32, DType::kBF16}) {
    const int64_t keys = 2500, rows = 37;
    const Array q = numbers({2, rows, 4, 16}, 1, t), k = numbers({2, keys, 2, 16}, 2, t);
    const Array v = numbers({2, keys, 2, 16}, 3, t);
    Graph all, one;
    Builder a(all), b(one);
    const auto build = [&](Builder& g, int64_t batch, int64_t first, int64_t count) {
      const Value x = input(g, "q", t, {2, rows, 4, 16}), y = input(g, "k", t, {2, keys, 2, 16});
      const Value z = input(g, "v", t, {2, keys, 2, 16});
      const auto part = [&](Value u) { return narrow(g, u, 0, batch, 1); };
      const Value cut = narrow(g, part(x), 1, first, count);
      g.graph().add_output("y", attention(g, cut, part(y), part(z), AttentionAttrs{}));
    };
    build(a, 1, 0, rows);
    build(b, 1, 20, 1);
    const Array full = eval(cpu_device(), all, std::array{q, k, v})[0];
    const Array single = eval(cpu_device(), one, std::array{q, k, v})[0];
    const Array batch = run(kAttentionOp, {}, {q, k, v})[0];
    for (int64_t i = 0; i < 4 * 16; ++i) {
      EXPECT_EQ(single.at(i), full.at(20 * 64 + i)) << i;
      EXPECT_EQ(single.at(i), batch.at((rows + 20) * 64 + i)) << i;
    }
  }
}

double seconds_per_run(Executable& e, std::span<const Array> inputs, std::span<Array> outputs) {
  return fastest_of(20, [&] { e.run_into(inputs, outputs); });
}

// 64 live keys of 4096 are a 64th of the work; at most an eighth of the time leaves room for a busy
// machine.
TEST(Attention, AStepCostsWhatLives) {
  Graph g;
  Builder b(g);
  const Value q = input(b, "q", DType::kF32, {1, 1, 8, 64});
  const Value k = input(b, "k", DType::kF32, {1, 4096, 8, 64});
  const Value v = input(b, "v", DType::kF32, {1, 4096, 8, 64});
  const Value kv_len = input(b, "kv_len", DType::kI64, Shape{});
  AttentionAttrs a;
  a.mask = AttentionMask::kCausal;
  g.add_output("y", attention(b, q, k, v, a, {.kv_len = kv_len}));
  SessionOptions options;
  options.threads = 1;
  Session session(cpu_device(), options);
  Executable e = session.compile(g);
  const auto inputs = [](int64_t live) {
    return std::vector<Array>{numbers({1, 1, 8, 64}, 1), numbers({1, 4096, 8, 64}, 2),
                              numbers({1, 4096, 8, 64}, 3), Array::scalar<int64_t>(live)};
  };
  const std::vector<Array> few = inputs(64), many = inputs(4096);
  std::array<Array, 1> y = {Array::zeros(DType::kF32, {1, 1, 8, 64})};
  const auto ratio = [&] { return seconds_per_run(e, few, y) / seconds_per_run(e, many, y); };
  EXPECT_LT(least_of_tries(0.125, ratio), 0.125);
  EXPECT_EQ(e.compiles(), 1);
}

TEST(Attention, MemoryIsLinearInTheLengths) {
  const auto arena = [](int64_t n, bool backward) {
    Graph g;
    Builder b(g);
    const Value q = input(b, "q", DType::kF32, {1, n, 2, 16});
    const Value y = attention(b, q, q, q, AttentionAttrs{});
    g.add_output("y", sum(b, y, {0, 1, 2, 3}));
    Session session(cpu_device());
    return session.compile(backward ? grad(g, "y", {"q"}) : g).estimate().arena;
  };
  for (const bool backward : {false, true}) {
    const int64_t small = arena(4096, backward), large = arena(8192, backward);
    EXPECT_LE(large, 3 * small);
    EXPECT_LE(large, int64_t(8192) * 8192);  // a byte per pair would be as much
  }
}

int count_of(const Graph& g, const OpDef& op) {
  return int(std::count_if(g.nodes().begin(), g.nodes().end(),
                           [&](const Node& n) { return n.op == &op; }));
}

TEST(Attention, VmapStaysOneAttention) {
  Graph g;
  Builder b(g);
  const Value q = input(b, "q", DType::kF32, {2, 5, 4, 8}),
              k = input(b, "k", DType::kF32, {2, 7, 2, 8});
  const Value bias = input(b, "bias", DType::kF32, {1, 4, 5, 7});
  g.add_output("y", attention(b, q, k, k, AttentionAttrs{}, {.bias = bias}));
  for (const std::vector<std::string>& batched :
       {std::vector<std::string>{"q"}, {"bias"}, {"q", "k", "bias"}}) {
    const Graph v = vmap(g, Dim::symbol("n"), batched);
    EXPECT_EQ(count_of(v, kAttentionOp), 1);
    EXPECT_EQ(v.type(v.outputs()[0].value).shape, (Shape{Dim::symbol("n"), 2, 5, 4, 8}));
  }
}

TEST(Attention, PackedOperandsAreReshaped) {
  const Array q = numbers({2, 5, 12}, 1), k = numbers({2, 7, 6}, 2), v = numbers({2, 7, 4}, 3);
  Graph g;
  Builder b(g);
  const Value x = input(b, "q", DType::kF32, {2, 5, 12});
  const Value keys = input(b, "k", DType::kF32, {2, 7, 6});
  const Value y = attention_packed(b, x, keys, input(b, "v", DType::kF32, {2, 7, 4}), 4, 2);
  EXPECT_EQ(b.shape(y), (Shape{2, 5, 8}));
  g.add_output("y", y);
  const Array packed = eval(cpu_device(), g, std::array{q, k, v})[0];
  const Array heads =
      run(kAttentionOp, {},
          {q.reshaped({2, 5, 4, 3}), k.reshaped({2, 7, 2, 3}), v.reshaped({2, 7, 2, 2})})[0];
  EXPECT_TRUE(packed.same_bits(heads.reshaped({2, 5, 8})));
  const Value row = input(b, "row", DType::kF32, {5, 12});
  EXPECT_EQ(b.shape(attention_packed(b, row, row, row, 3, 3)), (Shape{5, 12}));
  EXPECT_THROW(attention_packed(b, row, row, row, 5, 5), Error);
  EXPECT_THROW(attention_packed(b, y, row, row, 2, 2), Error);
}

// Slices of one product are read where they lie.
TEST(Attention, SlicesOfAFusedProductAreNotCopied) {
  Graph g;
  Builder b(g);
  const Value qkv = input(b, "qkv", DType::kF32, {2, 50, 3 * 32});
  const auto part = [&](int64_t i) {
    return reshape(b, narrow(b, qkv, 2, 32 * i, 32), {2, 50, 4, 8});
  };
  g.add_output("y", attention(b, part(0), part(1), part(2), AttentionAttrs{}));
  Session session(cpu_device());
  EXPECT_EQ(session.compile(g).plan().steps.size(), 1u);
}

TEST(Attention, SymbolicSizesDecompose) {
  Graph g;
  Builder b(g);
  const Dim n = Dim::symbol("n"), m = Dim::symbol("m"), w = Dim::symbol("w");
  const Value q = input(b, "q", DType::kF32, {2, n, 4, w}),
              k = input(b, "k", DType::kF32, {2, m, 2, w});
  AttentionAttrs a;
  a.mask = AttentionMask::kSlidingWindow;
  a.window = 3;
  const Value y = attention(b, q, k, k, a);
  g.add_output("y", y);
  const std::vector<TensorType> types = {b.type(q), b.type(k), b.type(k)};
  const Graph body = expand_to_graph(kAttentionOp, g.node(y).attrs, types);
  const std::vector<Array> inputs = {numbers({2, 5, 4, 8}, 1), numbers({2, 7, 2, 8}, 2)};
  Session session(cpu_device());
  const Array expected = session.compile(g).run({inputs[0], inputs[1]})[0];
  const Array native = run(kAttentionOp, a, {inputs[0], inputs[1], inputs[1]})[0];
  const Array other = session.compile(body).run({inputs[0], inputs[1], inputs[1]})[0];
  for (int64_t i = 0; i < native.num_elements(); ++i) {
    EXPECT_NEAR(native.at(i), other.at(i), 1e-6);
    EXPECT_EQ(native.at(i), expected.at(i));
  }
}

// One of Highway's targets while it lives.
class ForcedTarget {
 public:
  explicit ForcedTarget(int64_t target) { choose(target); }
  ~ForcedTarget() { choose(0); }  // all

 private:
  static void choose(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

// Conformance runs on the best instruction set of the machine alone.
TEST(Attention, EveryInstructionSetIsRight) {
  const std::vector<Array> operands = {numbers({2, 70, 4, 20}, 1), numbers({2, 140, 2, 20}, 2),
                                       numbers({2, 140, 2, 9}, 3), numbers({2, 70, 4, 9}, 4),
                                       numbers({1, 4, 1, 140}, 5)};
  const std::vector<Array> forward = {operands[0], operands[1], operands[2], operands[4]};
  AttentionAttrs a;
  a.mask = AttentionMask::kSlidingWindow;
  a.window = 50;
  a.softcap = 2;
  a.scale = 0.25;
  a.has_bias = true;
  const auto y = refer(kAttentionOp, a, forward);
  const auto d = refer(kAttentionBackwardAllOp, a, operands);
  const auto expect_near = [](const std::vector<Array>& got,
                              const std::vector<reference::Tensor>& want) {
    for (size_t i = 0; i < want.size(); ++i) {
      int64_t wrong = 0;
      for (int64_t k = 0; k < want[i].size(); ++k) {
        wrong += !(std::fabs(got[i].at(k) - want[i].f[size_t(k)]) <= 2e-5);
      }
      EXPECT_EQ(wrong, 0) << "result " << i;
    }
  };
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const ForcedTarget forced(target);
    expect_near(run(kAttentionOp, a, forward), y);
    expect_near(run(kAttentionBackwardAllOp, a, operands), d);
  }
}

TEST(Attention, SoftcapOfZeroAndBelowIsNone) {
  const std::vector<Array> operands = {numbers({1, 3, 2, 4}, 1), numbers({1, 5, 2, 4}, 2),
                                       numbers({1, 5, 2, 4}, 3)};
  const auto plain = run(kAttentionOp, {}, operands);
  AttentionAttrs a;
  for (const double cap : {0.0, -2.0, -std::numeric_limits<double>::infinity()}) {
    a.softcap = cap;
    expect_bits(run(kAttentionOp, a, operands), plain);
  }
  a.softcap = std::numeric_limits<double>::infinity();
  EXPECT_THROW(run(kAttentionOp, a, operands), Error);
}

TEST(Attention, TwoKeysByHand) {
  // Scores ln 3 and 0: weights 3/4 and 1/4.
  reference::Tensor q(DType::kF64, {1, 1, 1, 1}), k(DType::kF64, {1, 2, 1, 1}), v = k;
  q.f = {std::log(3.0)};
  k.f = {1, 0};
  v.f = {4, 8};
  const auto y = reference::evaluate(kAttentionOp, Attrs::of(kAttentionOp.fields, AttentionAttrs{}),
                                     std::array{q, k, v});
  EXPECT_NEAR(y[0].f[0], 5, 1e-12);
  reference::Tensor dy = q;
  dy.f = {1};
  const auto d = reference::evaluate(kAttentionBackwardAllOp,
                                     Attrs::of(kAttentionBackwardAllOp.fields, AttentionAttrs{}),
                                     std::array{q, k, v, dy});
  // ds = p (v - y) = (-3/4, 3/4).
  EXPECT_NEAR(d[0].f[0], -0.75, 1e-12);
  EXPECT_NEAR(d[1].f[1], 0.75 * std::log(3.0), 1e-12);
  EXPECT_NEAR(d[2].f[0], 0.75, 1e-12);
}

}  // namespace
}  // namespace rlx
