// The hard-wired ends of matrix products: which are recognized, and the bits of the calls alone.
#include "rlx/compile/epilogue.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/ops/build.h"
#include "rlx/runtime/session.h"
#include "rlx/testing/random_graph.h"

namespace rlx {
namespace {

using Kind = ActivationKind;

// x (M, K), w (K, N), c (N), r (M, N).
struct Operands {
  Value x, w, c, r;
};
using Body = std::function<std::vector<Value>(Builder&, const Operands&)>;

struct Form {
  std::string_view name;
  Body make;
  std::string_view found;  // "bias 2, Gelu, residual 3, result 0, before 1"; empty: none
};

Value linear(Builder& b, const Operands& o) { return add(b, matmul(b, o.x, o.w), o.c); }

template <Kind kKind>
std::vector<Value> biased(Builder& b, const Operands& o) {
  return {activation(b, kKind, linear(b, o))};
}

const std::vector<Form>& hard_wired() {
  static const std::vector<Form> forms = {
      {"bias", [](Builder& b, const Operands& o) { return std::vector{linear(b, o)}; },
       "bias 2, result 0"},
      {"bias_first",
       [](Builder& b, const Operands& o) { return std::vector{add(b, o.c, matmul(b, o.x, o.w))}; },
       "bias 2, result 0"},
      {"bias_relu", biased<Kind::kRelu>, "bias 2, Relu, result 0"},
      {"bias_gelu", biased<Kind::kGelu>, "bias 2, Gelu, result 0"},
      {"bias_gelu_approx", biased<Kind::kGeluApprox>, "bias 2, GeluApprox, result 0"},
      {"relu",
       [](Builder& b, const Operands& o) { return std::vector{relu(b, matmul(b, o.x, o.w))}; },
       "Relu, result 0"},
      {"residual",
       [](Builder& b, const Operands& o) { return std::vector{add(b, matmul(b, o.x, o.w), o.r)}; },
       "residual 3, result 0"},
      {"bias_residual",
       [](Builder& b, const Operands& o) { return std::vector{add(b, linear(b, o), o.r)}; },
       "bias 2, residual 3, result 0"},
      {"bias_gelu_residual",
       [](Builder& b, const Operands& o) {
         return std::vector{add(b, o.r, activation(b, Kind::kGelu, linear(b, o)))};
       },
       "bias 2, Gelu, residual 3, result 0"},
      {"kept",
       [](Builder& b, const Operands& o) {
         const Value before = linear(b, o);
         return std::vector{before, activation(b, Kind::kGelu, before)};
       },
       "bias 2, Gelu, result 1, before 0"},
      {"kept_behind",
       [](Builder& b, const Operands& o) {
         const Value before = linear(b, o);
         return std::vector{add(b, relu(b, before), o.r), before};
       },
       "bias 2, Relu, residual 3, result 0, before 1"},
      {"kept_sum",
       [](Builder& b, const Operands& o) {
         const Value sum = matmul(b, o.x, o.w);
         return std::vector{sum, relu(b, sum)};
       },
       "Relu, result 1, before 0"},
  };
  return forms;
}

const std::vector<Form>& others() {
  static const std::vector<Form> forms = {
      {"product", [](Builder& b, const Operands& o) { return std::vector{matmul(b, o.x, o.w)}; },
       ""},
      {"other_activation", biased<Kind::kTanh>, ""},
      {"residual_before_activation",
       [](Builder& b, const Operands& o) {
         return std::vector{relu(b, add(b, linear(b, o), o.r))};
       },
       ""},
      {"two_activations",
       [](Builder& b, const Operands& o) {
         return std::vector{relu(b, activation(b, Kind::kGelu, linear(b, o)))};
       },
       ""},
      {"bias_after_activation",
       [](Builder& b, const Operands& o) {
         return std::vector{add(b, relu(b, matmul(b, o.x, o.w)), o.c)};
       },
       ""},
      {"difference",
       [](Builder& b, const Operands& o) { return std::vector{sub(b, matmul(b, o.x, o.w), o.c)}; },
       ""},
      {"kept_product_of_a_bias",
       [](Builder& b, const Operands& o) {
         const Value sum = matmul(b, o.x, o.w);
         return std::vector{sum, add(b, sum, o.c)};
       },
       ""},
      {"kept_after_activation",
       [](Builder& b, const Operands& o) {
         const Value y = relu(b, linear(b, o));
         return std::vector{y, add(b, y, o.r)};
       },
       ""},
      {"twice",
       [](Builder& b, const Operands& o) {
         const Value sum = matmul(b, o.x, o.w);
         return std::vector{add(b, sum, sum)};
       },
       ""},
      {"constant",
       [](Builder& b, const Operands& o) { return std::vector{add(b, matmul(b, o.x, o.w), 1)}; },
       ""},
  };
  return forms;
}

Graph graph_of(const Body& make, int64_t m, int64_t n, int64_t k, bool weights = false,
               DType t = DType::kF32) {
  Graph g("body");
  Builder b(g);
  Operands o;
  o.x = input(b, "x", t, {m, k});
  o.w = weights ? param(b, "w", t, {k, n}) : input(b, "w", t, {k, n});
  o.c = weights ? param(b, "c", t, {n}) : input(b, "c", t, {n});
  o.r = input(b, "r", t, {m, n});
  const std::vector<Value> results = make(b, o);
  for (size_t i = 0; i < results.size(); ++i) g.add_output(fmt::format("y{}", i), results[i]);
  return g;
}

std::string text_of(const std::optional<ProductEpilogue>& e) {
  if (!e) return "";
  std::string text;
  if (e->bias) text += fmt::format("bias {}, ", *e->bias);
  if (e->activation == Kind::kRelu) text += "Relu, ";
  if (e->activation == Kind::kGelu) text += "Gelu, ";
  if (e->activation == Kind::kGeluApprox) text += "GeluApprox, ";
  if (e->residual) text += fmt::format("residual {}, ", *e->residual);
  text += fmt::format("result {}", e->result);
  if (e->before) text += fmt::format(", before {}", *e->before);
  return text;
}

TEST(ProductEpilogue, IsFoundByStructure) {
  for (const auto* forms : {&hard_wired(), &others()}) {
    for (const Form& f : *forms) {
      EXPECT_EQ(text_of(product_epilogue(graph_of(f.make, 5, 7, 3))), f.found) << f.name;
      EXPECT_EQ(text_of(product_epilogue(graph_of(f.make, 5, 7, 3, false, DType::kF64))), "");
    }
  }
}

// Numbers, and some that are none.
Array values(Dice& dice, const Dims& dims) {
  Array a = random_array(dice, DType::kF32, dims);
  auto* p = static_cast<float*>(a.mutable_raw());
  const float odd[] = {std::numeric_limits<float>::infinity(), -0.f, 1e30f, -30,
                       std::numeric_limits<float>::quiet_NaN()};
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    if (dice.once_in(997)) p[i] = odd[dice.below(5)];
  }
  return a;
}

void expect_same_bits(const Array& a, const Array& b) {
  if (a.same_bits(b)) return;
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    const double x = a.at(i), y = b.at(i);
    if (std::isnan(x) && std::isnan(y)) continue;
    ASSERT_TRUE(x == y && std::signbit(x) == std::signbit(y))
        << "element " << i << ": " << x << " fused, " << y << " alone";
  }
}

void compare(const Form& f, int64_t m, int64_t n, int64_t k, bool weights, bool one_step = true) {
  SCOPED_TRACE(fmt::format("{} {} x {} x {} weights {}", f.name, m, n, k, weights));
  Dice dice(uint64_t(m * 31 + n * 7 + k));
  const Graph g = graph_of(f.make, m, n, k, weights);
  const Array x = values(dice, {m, k}), w = values(dice, {k, n}), c = values(dice, {n});
  const Array r = values(dice, {m, n});
  Session session(cpu_device());
  if (weights) session.weights().set({{"w", w}, {"c", c}});
  const std::vector<Array> inputs = weights ? std::vector{x, r} : std::vector{x, w, c, r};
  CompileOptions fused, alone;
  fused.fuse_always = true;
  alone.fuse = false;
  Executable one = session.compile(g, fused), many = session.compile(g, alone);
  ASSERT_EQ(one.plan().steps.size(), one_step ? 1u : 2u);
  EXPECT_EQ(one.plan().steps[0].op->name == "Group", one_step);
  const std::vector<Array> got = one.run(inputs), want = many.run(inputs);
  for (size_t i = 0; i < want.size(); ++i) expect_same_bits(got[i], want[i]);
}

TEST(ProductEpilogue, HasTheBitsOfTheCallsAlone) {
  // Few rows by wide kernels, operands where they lie, single panels, several blocks of k and of
  // rows; tails of both.
  constexpr int64_t kSizes[][3] = {{1, 300, 33},  {2, 257, 17},    {3, 2, 5},      {5, 31, 1},
                                   {13, 33, 600}, {32, 256, 64},   {47, 1027, 40}, {130, 96, 300},
                                   {300, 70, 70}, {271, 515, 1030}};
  bool weights = false;
  for (const Form& f : hard_wired()) {
    for (const auto& [m, n, k] : kSizes) {
      compare(f, m, n, k, weights);
      if (HasFatalFailure()) return;
      weights = !weights;
    }
    weights = !weights;  // the other way round for the next form
  }
}

// A weight that is packed for the product is not read in its packed form by the sum.
TEST(ProductEpilogue, AnOperandMayBeTheResidualToo) {
  for (const int64_t n : {7, 128, 200}) {
    compare({"weight",
             [](Builder& b, const Operands& o) {
               return std::vector{add(b, matmul(b, o.r, o.w), o.w)};
             },
             ""},
            n, n, n, true, false);
    compare({"operand",
             [](Builder& b, const Operands& o) {
               return std::vector{add(b, matmul(b, o.x, o.w), o.x)};
             },
             ""},
            n, n, n, true);
  }
}

}  // namespace
}  // namespace rlx
