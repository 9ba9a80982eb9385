// What fusion forms, and what it leaves alone and why: a table of small graphs.
#include "rlx/compile/group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <map>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/compile/group_units.h"
#include "rlx/ir/verify.h"
#include "rlx/ops/activation.h"
#include "rlx/ops/bind_size.h"
#include "rlx/ops/build.h"
#include "rlx/ops/conv.h"
#include "rlx/ops/dot_general.h"
#include "rlx/ops/elementwise_region.h"
#include "rlx/ops/fused.h"
#include "rlx/ops/group.h"
#include "rlx/ops/reduce.h"
#include "rlx/ops/table.h"
#include "rlx/runtime/session.h"
#include "rlx/testing/random_graph.h"
#include "tests/unit/timing.h"

namespace rlx {

RLX_USE_OP(ElementwiseRegion);
RLX_USE_OP(Group);

namespace {

// The CPU's kernels, and a region kernel that takes everything.
class AllRegions final : public KernelTable {
 public:
  std::string_view name() const override { return "all regions"; }
  const KernelList* find(const OpDef& op) const override {
    if (&op == &kElementwiseRegionOp) return &regions_;
    return cpu_device().kernels().find(op);
  }

 private:
  static constexpr StrideForm kAnyForm[] = {StrideForm::kAny};
  static constexpr KernelEntry kEntries[] = {
      {.name = "any",
       .fits = [](const KernelCall&) -> std::string_view { return ""; },
       .operand_forms = kAnyForm,
       .result_form = StrideForm::kAny}};
  const KernelList regions_{kEntries};
};

std::string names_in(const Graph& body) {
  std::string list;
  for (const Node& n : body.nodes()) {
    if (n.op->has(kLeaf)) continue;
    list += (list.empty() ? "" : " ") + std::string(n.op->name);
  }
  return list;
}

// "Group(MatMul Binary) -> 1, Softmax": the calls in order; of those with bodies the number of
// results.
std::string calls_of(const Graph& g) {
  std::string list;
  for (const Node& n : g.nodes()) {
    if (n.op->has(kLeaf) || n.op->has(kView)) continue;
    list += (list.empty() ? "" : ", ") + std::string(n.op->name);
    const GraphRef* body = nullptr;
    if (n.op == &kGroupOp) body = &n.attrs.as<GroupAttrs>().body;
    if (n.op == &kElementwiseRegionOp) body = &n.attrs.as<ElementwiseRegionAttrs>().body;
    if (body) list += fmt::format("({}) -> {}", names_in(**body), n.results.size());
  }
  return list;
}

struct Formed {
  std::string calls;
  std::string notes;
  Graph graph;
};

Formed form(const Graph& g, bool always = true, const SymbolBindings& bounds = {}) {
  Formed f;
  std::vector<LegalizeNote> notes;
  LegalizeOptions legalize;
  legalize.bounds = bounds;
  f.graph = form_groups(drop_dead(canonicalize(g)), AllRegions(),
                        {.strict_rounding = false, .always = always}, legalize, &notes);
  verify(f.graph, "form_groups");
  f.graph = drop_dead(f.graph);
  f.calls = calls_of(f.graph);
  for (const LegalizeNote& n : notes) f.notes += n.op + ": " + n.text + "\n";
  return f;
}

// Names the operands that the cases use.
struct Maker {
  Graph g;
  Builder b{g};
  Value in(std::string_view name, Shape shape, DType t = DType::kF32) {
    return input(b, name, t, std::move(shape));
  }
  void out(Value v) { g.add_output(fmt::format("y{}", g.outputs().size()), v); }
};

struct Case {
  std::string_view name;
  std::function<void(Maker&)> make;
  std::string_view calls;
  std::string_view note;  // a part of the notes; empty: none asked for
};

Value linear(Maker& m, Value x, Value w, Value bias) { return add(m.b, matmul(m.b, x, w), bias); }

std::vector<Case> fused_cases() {
  return {
      {"matmul_bias_relu",
       [](Maker& m) {
         const Value x = m.in("x", {8, 16}), w = m.in("w", {16, 32}), c = m.in("c", {32});
         m.out(relu(m.b, linear(m, x, w, c)));
       },
       "Group(MatMul Binary Activation) -> 1", "fused, saves 2048 bytes"},
      {"matmul_bias_gelu_residual",
       [](Maker& m) {
         const Value x = m.in("x", {8, 16}), w = m.in("w", {16, 16}), c = m.in("c", {16});
         m.out(add(m.b, activation(m.b, ActivationKind::kGelu, linear(m, x, w, c)), x));
       },
       "Group(MatMul Binary Activation Binary) -> 1", ""},
      {"fused_name",
       [](Maker& m) {
         const Value x = m.in("x", {8, 16}), w = m.in("w", {16, 32}), c = m.in("c", {32});
         m.out(fused_matmul_bias_act(m.b, x, w, c, ActivationKind::kSilu));
       },
       "Group(MatMul Binary Activation) -> 1", ""},
      {"conv_bias_relu",
       [](Maker& m) {
         const Value x = m.in("x", {1, 3, 8, 8}), w = m.in("w", {4, 3, 3, 3});
         const Value c = m.in("c", {4, 1, 1});
         m.out(relu(m.b, add(m.b, conv(m.b, x, w, ConvAttrs{}), c)));
       },
       "Group(Conv Binary Activation) -> 1", ""},
      {"depthwise_bias",
       [](Maker& m) {
         ConvAttrs a;
         a.groups = 6;
         const Value x = m.in("x", {1, 6, 9}), w = m.in("w", {6, 1, 3}), c = m.in("c", {6, 1});
         m.out(add(m.b, conv(m.b, x, w, a), c));
       },
       "Group(Conv Binary) -> 1", ""},
      {"norm_of_a_kept_sum",
       [](Maker& m) {
         const Value x = m.in("x", {8, 16}), r = m.in("r", {8, 16});
         const Value gamma = m.in("gamma", {16}), beta = m.in("beta", {16});
         const Value s = add(m.b, x, r);
         m.out(layer_norm(m.b, s, gamma, beta));
         m.out(s);
       },
       "Group(Binary LayerNorm) -> 2", "fused, saves 512 bytes"},
      {"softmax_scale_mask",
       [](Maker& m) {
         const Value x = m.in("x", {2, 4, 16}), mask = m.in("mask", {16});
         m.out(softmax(m.b, add(m.b, mul(m.b, x, 0.125), mask)));
       },
       "Group(Binary Binary Softmax) -> 1", ""},
      {"root_mean_square",
       [](Maker& m) {
         const Value x = m.in("x", {8, 16});
         m.out(rsqrt(m.b, add(m.b, mean(m.b, mul(m.b, x, x), {1}), 1e-3)));
       },
       "Group(Binary Reduce Binary Activation) -> 1", ""},
      {"chain",
       [](Maker& m) {
         const Value x = m.in("x", {5, 7}), y = m.in("y", {7});
         m.out(tanh(m.b, mul(m.b, add(m.b, x, y), 2)));
       },
       "ElementwiseRegion(Binary Binary Activation) -> 1", "ElementwiseRegion: "},
      {"values_used_outside",
       [](Maker& m) {
         const Value x = m.in("x", {5, 7});
         const Value h = exp(m.b, x);
         m.out(matmul(m.b, h, m.in("w", {7, 2})));
         m.out(neg(m.b, h));
       },
       "ElementwiseRegion(Activation Activation) -> 2, MatMul", ""},
      {"diamond",
       [](Maker& m) {
         const Value x = exp(m.b, m.in("x", {5, 7}));
         m.out(mul(m.b, neg(m.b, x), tanh(m.b, x)));
       },
       "ElementwiseRegion(Activation Activation Activation Binary) -> 1", ""},
      {"two_chains_meet",
       [](Maker& m) {
         const Value x = exp(m.b, m.in("x", {5, 7})), y = tanh(m.b, m.in("y", {5, 7}));
         m.out(add(m.b, x, y));
       },
       "ElementwiseRegion(Activation Activation Binary) -> 1", ""},
      {"kept_for_the_backward_pass",
       [](Maker& m) {
         const Value x = m.in("x", {8, 16}), w = m.in("w", {16, 32}), c = m.in("c", {32});
         const Value pre = linear(m, x, w, c);
         m.out(pre);
         m.out(activation(m.b, ActivationKind::kGelu, pre));
       },
       "Group(MatMul Binary Activation) -> 2", ""},
      {"cast_after_product",
       [](Maker& m) {
         const Value x = m.in("x", {8, 16}), w = m.in("w", {16, 32});
         m.out(cast(m.b, matmul(m.b, x, w), DType::kBF16));
       },
       "Group(MatMul Cast) -> 1", ""},
      {"contraction_and_scale",
       [](Maker& m) {
         const Value x = m.in("x", {16, 5}), y = m.in("y", {16, 3});
         m.out(mul(m.b, dot_general(m.b, x, y, {{0}, {0}, {}, {}}), 0.5));
       },
       "Group(DotGeneral Binary) -> 1", ""},
      {"two_products_meet",
       [](Maker& m) {
         const Value x = m.in("x", {8, 16}), w = m.in("w", {16, 32}), v = m.in("v", {16, 32});
         m.out(add(m.b, matmul(m.b, x, w), matmul(m.b, x, v)));
       },
       "MatMul, Group(MatMul Binary) -> 1", "which saves no less"},
      {"swiglu",
       [](Maker& m) {
         const Value x = m.in("x", {8, 32});
         m.out(fused_swiglu(m.b, x));
       },
       "ElementwiseRegion(Binary Activation Binary) -> 1", ""},
      {"optimizer_step",
       [](Maker& m) {
         const Value p = param(m.b, "p", DType::kF32, {16}, true);
         const Value v = param(m.b, "v", DType::kF32, {16}, true);
         const Value g = m.in("g", {16});
         const Value velocity = add(m.b, mul(m.b, v, 0.9), g);
         m.g.add_update("v", velocity);
         m.g.add_update("p", sub(m.b, p, mul(m.b, velocity, 0.1)));
       },
       // Each writes over its param.
       "ElementwiseRegion(Binary Binary) -> 1, ElementwiseRegion(Binary Binary) -> 1", ""},
      {"rms_norm_of_a_sum",
       [](Maker& m) {
         const Value x = m.in("x", {8, 16}), r = m.in("r", {8, 16}), gamma = m.in("gamma", {16});
         m.out(fused_residual_rms_norm(m.b, x, r, {}, gamma, m.in("beta", {16})));
       },
       "Group(Binary RmsNorm) -> 1", ""},
  };
}

std::vector<Case> single_cases() {
  return {
      {"softmax_of_columns",
       [](Maker& m) {
         m.out(softmax(m.b, exp(m.b, m.in("x", {5, 7})), 0));
       },
       "Activation, Softmax", "not fused: its axis is not the last\n"},
      {"reduce_columns",
       [](Maker& m) {
         const Value x = m.in("x", {5, 7});
         m.out(sum(m.b, mul(m.b, x, x), {0}));
       },
       "Binary, Reduce", "it reduces other axes than the last"},
      {"reduce_long_rows",
       [](Maker& m) {
         const Value x = m.in("x", {2, 20000});
         m.out(sum(m.b, mul(m.b, x, x), {1}));
       },
       "Binary, Reduce", "splits them among threads"},
      // In place of the old weight there is no room for the product.
      {"weight_update",
       [](Maker& m) {
         const Value p = param(m.b, "p", DType::kF32, {16, 4}, true);
         const Value x = m.in("x", {8, 16}), dy = m.in("dy", {8, 4});
         m.g.add_update("p", sub(m.b, p, matmul(m.b, swap_last_axes(m.b, x), dy)));
       },
       "MatMul, Binary", "it would save 512 bytes and lose 512"},
      // The sum is written straight into its place.
      {"part_of_a_concat",
       [](Maker& m) {
         const Value x = m.in("x", {8, 16}), w = m.in("w", {16, 4}), r = m.in("r", {8, 4});
         const std::vector<Value> parts{add(m.b, matmul(m.b, x, w), r), r};
         m.out(concat(m.b, parts, 1));
       },
       "MatMul, Binary, Concat", "it would save 256 bytes and lose 256"},
      {"result_broadcast_later",
       [](Maker& m) {
         const Value x = m.in("x", {1, 16}), w = m.in("w", {16, 4}), r = m.in("r", {8, 4});
         m.out(add(m.b, matmul(m.b, x, w), r));
       },
       "MatMul, Binary", ""},
      // The product lies between relu and the sum.
      {"around_a_product",
       [](Maker& m) {
         const Value h = relu(m.b, m.in("x", {8, 8}));
         m.out(add(m.b, matmul(m.b, h, m.in("w", {8, 8})), h));
       },
       "Activation, Group(MatMul Binary) -> 1", ""},
      {"sum_needed_after_the_norm",
       [](Maker& m) {
         const Value x = m.in("x", {8, 16}), r = m.in("r", {8, 16});
         const Value gamma = m.in("gamma", {16}), beta = m.in("beta", {16});
         const Value s = add(m.b, x, r);
         m.out(add(m.b, layer_norm(m.b, s, gamma, beta), s));
       },
       "Binary, Group(LayerNorm Binary) -> 1", "the calls after the root read one before it"},
      {"complex_numbers",
       [](Maker& m) {
         const Value x = m.in("x", {4, 4}, DType::kC64);
         m.out(mul(m.b, neg(m.b, matmul(m.b, x, x)), x));
       },
       "MatMul, Activation, Binary", ""},
      {"smaller_values",
       [](Maker& m) {
         const Value bias = mul(m.b, m.in("a", {7}), m.in("b", {7}));
         m.out(add(m.b, m.in("x", {5, 7}), bias));
       },
       "Binary, Binary", ""},
      // Fused, p would be overwritten before the product has read it.
      {"old_weight_read_later",
       [](Maker& m) {
         const Value p = param(m.b, "p", DType::kF32, {4, 4}, true);
         const Value h = exp(m.b, m.in("x", {4, 4}));
         m.g.add_update("p", mul(m.b, p, h));
         m.out(matmul(m.b, h, p));
       },
       "Activation, Binary, MatMul", ""},
      {"product_reads_a_chain",
       [](Maker& m) {
         m.out(matmul(m.b, exp(m.b, m.in("x", {8, 16})), m.in("w", {16, 4})));
       },
       "Activation, MatMul", ""},
  };
}

// With sizes n and m up to 32.
std::vector<Case> bounded_cases() {
  const Dim n = Dim::symbol("n"), m2 = Dim::symbol("m");
  return {
      {"rows_of_a_product",
       [=](Maker& m) {
         const Value x = m.in("x", {n, 16}), w = m.in("w", {16, 32}), c = m.in("c", {32});
         m.out(relu(m.b, linear(m, x, w, c)));
       },
       "Group(MatMul Binary Activation) -> 1", "fused, saves 8192 bytes"},
      {"rows_of_a_norm",
       [=](Maker& m) {
         const Value x = m.in("x", {1, n, 16}), r = m.in("r", {1, n, 16});
         const Value s = add(m.b, x, r);
         m.out(layer_norm(m.b, s, m.in("gamma", {16}), m.in("beta", {16})));
         m.out(s);
       },
       "Group(Binary LayerNorm) -> 2", "fused, saves 2048 bytes"},
      {"chain",
       [=](Maker& m) {
         const Value x = m.in("x", {m2, 3, n}), y = m.in("y", {n});
         m.out(tanh(m.b, mul(m.b, add(m.b, x, y), 2)));
       },
       "ElementwiseRegion(Binary Binary Activation) -> 1", ""},
      // Equal at the bound only.
      {"other_sizes",
       [=](Maker& m) {
         m.out(exp(m.b, m.in("x", {m2, 4})));
         m.out(add(m.b, exp(m.b, m.in("y", {n, 4})), m.in("z", {n, 4})));
       },
       "Activation, ElementwiseRegion(Activation Binary) -> 1", ""},
      {"columns_of_a_product",
       [=](Maker& m) {
         const Value x = m.in("x", {8, 16}), w = m.in("w", {16, n});
         m.out(relu(m.b, matmul(m.b, x, w)));
       },
       "MatMul, Activation", "it takes dense memory only, which less than the bound of n is not"},
      {"rows_in_a_batch",
       [=](Maker& m) {
         const Value x = m.in("x", {2, n, 16}), mask = m.in("mask", {16});
         m.out(softmax(m.b, add(m.b, mul(m.b, x, 0.125), mask)));
       },
       "ElementwiseRegion(Binary Binary) -> 1, Softmax",
       "not fused: it takes dense memory only, which less than the bound of n is not\n"},
  };
}

void check(const std::vector<Case>& cases, const SymbolBindings& bounds = {}) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Maker m;
    c.make(m);
    const Formed f = form(m.g, true, bounds);
    EXPECT_EQ(f.calls, c.calls);
    EXPECT_NE(f.notes.find(c.note), std::string::npos) << f.notes;
  }
}

TEST(Groups, FormWhereTheySaveBytes) { check(fused_cases()); }

TEST(Groups, LeaveAloneWhatTheyWouldMakeWorse) { check(single_cases()); }

TEST(Groups, FormWithBoundedSizes) { check(bounded_cases(), {{"n", 32}, {"m", 32}}); }

// A call that mentions a size comes after the one that sets it, operand or not.
TEST(Groups, KeepBehindTheSettingOfASize) {
  Maker m;
  const Value e = exp(m.b, m.in("z", {4, 4}));
  bind_size(m.b, cast(m.b, sum(m.b, e, {0, 1}), DType::kI64), "n", 9);
  const auto rows = [&](std::string_view name) {
    return narrow(m.b, m.in(name, {9, 4}), 0, 0, Dim::symbol("n"));
  };
  const Value p = matmul(m.b, swap_last_axes(m.b, rows("x")), rows("y"));
  m.out(add(m.b, p, e));  // not one region with e: the product between them has the size
  const Formed f = form(m.g, true, {{"n", 9}});
  EXPECT_EQ(f.calls, "Group(Activation Reduce Cast) -> 2, BindSize, Group(MatMul Binary) -> 1");
}

// By what they are at the bound.
TEST(Groups, JudgeBoundedSizesAtTheBound) {
  const auto calls = [](int64_t bound) {
    Maker m;
    const Value x = m.in("x", {Dim::symbol("n"), 64}), w = m.in("w", {64, 512});
    m.out(tanh(m.b, linear(m, x, w, m.in("c", {512}))));
    return form(m.g, false, {{"n", bound}}).calls;
  };
  EXPECT_EQ(calls(1535), "MatMul, ElementwiseRegion(Binary Activation) -> 1");
  EXPECT_EQ(calls(1536), "Group(MatMul Binary Activation) -> 1");
}

TEST(Groups, LeaveAloneWhatMeasuredNoGain) {
  const auto calls = [](int64_t rows, ActivationKind kind, DType t = DType::kF32) {
    Maker m;
    const Value x = m.in("x", {rows, 64}, t), w = m.in("w", {64, 512}, t), c = m.in("c", {512}, t);
    m.out(activation(m.b, kind, linear(m, x, w, c)));
    return form(m.g, false);
  };
  const std::string alone = "MatMul, ElementwiseRegion(Binary Activation) -> 1";
  const std::string fused = "Group(MatMul Binary Activation) -> 1";
  EXPECT_EQ(calls(1535, ActivationKind::kTanh).calls, alone);
  EXPECT_NE(calls(1535, ActivationKind::kTanh).notes.find("the product stays in the cache"),
            std::string::npos);
  EXPECT_EQ(calls(1536, ActivationKind::kTanh).calls, fused);
  // What the stores of a product do themselves.
  EXPECT_EQ(calls(1, ActivationKind::kRelu).calls, fused);
  EXPECT_EQ(calls(1535, ActivationKind::kGelu).calls, fused);
  EXPECT_EQ(calls(500, ActivationKind::kRelu, DType::kF64).calls, alone);
  const auto norm = [](int64_t rows) {
    Maker m;
    const Value x = m.in("x", {rows, 256}), r = m.in("r", {rows, 256});
    m.out(layer_norm(m.b, add(m.b, x, r), m.in("gamma", {256}), m.in("beta", {256})));
    return form(m.g, false).calls;
  };
  EXPECT_EQ(norm(511), "Binary, LayerNorm");
  EXPECT_EQ(norm(512), "Group(Binary LayerNorm) -> 1");
}

// The compiled plan: entries, and no copies that the graph alone does not need.
TEST(Groups, RunAsOneStep) {
  Maker m;
  const Value x = m.in("x", {8, 16});
  const Value w = param(m.b, "w", DType::kF32, {16, 32}), c = param(m.b, "c", DType::kF32, {32});
  m.out(relu(m.b, linear(m, x, w, c)));
  Session session(cpu_device());
  session.weights().set({{"w", Array::full(DType::kF32, {16, 32}, 0.5)},
                         {"c", Array::full(DType::kF32, {32}, -100)}});
  CompileOptions always;
  always.fuse_always = true;
  const Executable e = session.compile(m.g, always);
  ASSERT_EQ(e.plan().steps.size(), 1u);
  EXPECT_EQ(e.plan().steps[0].entry->name, "group:matmul");
  EXPECT_NE(e.report().to_string().find("fused, saves 2048 bytes"), std::string::npos);
  CompileOptions alone;
  alone.fuse = false;
  EXPECT_EQ(session.compile(m.g, alone).plan().steps.size(), 3u);
}

// Against a walk over all spans.
TEST(Groups, SpansThatReachOverANode) {
  Dice dice(3);
  for (const uint32_t size : {1U, 2U, 37U, 64U}) {
    SpanTree tree(size);
    std::map<uint32_t, uint32_t> spans;
    for (int step = 0; step < 300; ++step) {
      const auto first = uint32_t(dice.below(size));
      if (dice.once_in(3)) {
        tree.erase(first);
        spans.erase(first);
      } else if (const auto last = first + uint32_t(dice.below(size - first)); last > first) {
        tree.set(first, last);
        spans[first] = last;
      }
      for (uint32_t node = 0; node < size; ++node) {
        uint32_t smallest = node;
        for (const auto& [begin, end] : spans) {
          if (end >= node) smallest = std::min(smallest, begin);
        }
        ASSERT_EQ(tree.first_over(node), smallest) << node << " of " << size;
      }
    }
  }
}

// As many units as there are outputs: sixteen times the time for four times as many, where each
// search looks at all of them.
TEST(Groups, ManyIndependentRegionsFormInLinearTime) {
  Maker m;
  const Value x = m.in("x", {64});
  const int outputs = 48000;
  for (int i = 0; i < outputs; ++i) m.out(tanh(m.b, mul(m.b, x, i + 2)));
  const std::clock_t start = std::clock();
  const Formed f = form(m.g);
  EXPECT_LT(double(std::clock() - start) / CLOCKS_PER_SEC, 5 * kSlowdown);
  EXPECT_EQ(std::count_if(f.graph.nodes().begin(), f.graph.nodes().end(),
                          [](const Node& n) { return n.op == &kElementwiseRegionOp; }),
            outputs);
}

TEST(Groups, AreTheSameEveryTime) {
  Maker m;
  for (const Case& c : fused_cases()) {
    Maker once;
    c.make(once);
    EXPECT_EQ(form(once.g).graph, form(once.g).graph) << c.name;
  }
}

// A weight is packed as it is: the group's operand is the param itself.
TEST(Groups, KeepTheStorageOfWeights) {
  Maker m;
  const Value x = m.in("x", {4, 64}, DType::kBF16);
  const Value w = param(m.b, "w", DType::kBF16, {64, 64});
  const Value c = param(m.b, "c", DType::kBF16, {64});
  m.out(fused_matmul_bias_act(m.b, x, w, c, ActivationKind::kGelu));
  const Formed f = form(m.g);
  EXPECT_EQ(f.calls, "Group(MatMul Binary Activation) -> 1");
  for (const Node& n : f.graph.nodes()) {
    if (n.op != &kGroupOp) continue;
    EXPECT_EQ(f.graph.type(n.operands[1]).dtype, DType::kBF16);
  }
}

}  // namespace
}  // namespace rlx
