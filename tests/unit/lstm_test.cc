// What the conformance checks of Lstm do not say: frozen weights, sizes known when a plan is made
// or run, bits that do not depend on the batch, and errors at run time.
#include "rlx/ops/lstm.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/base/error.h"
#include "rlx/ops/build.h"
#include "rlx/ops/derive.h"
#include "rlx/runtime/eval.h"
#include "rlx/runtime/session.h"
#include "rlx/transform/grad.h"

namespace rlx {

RLX_USE_OP(Lstm);

namespace {

constexpr DType kF32 = DType::kF32, kI64 = DType::kI64;

Array numbers(Dims shape, uint32_t seed, DType dtype = kF32) {
  Array a = Array::uninitialized(kF32, std::move(shape));
  for (float& v : a.mutable_data<float>()) {
    v = float((seed = seed * 1664525u + 1013904223u) >> 8) / float(1 << 24) - 0.5F;
  }
  if (dtype == kF32) return a;
  Graph g;
  Builder b(g);
  g.add_output("y", cast(b, input(b, "x", kF32, a.type().shape), dtype));
  return eval(cpu_device(), g, std::array{a})[0];
}

LstmAttrs both_ways(int64_t hidden, int64_t layers) {
  LstmAttrs a;
  a.hidden_size = hidden;
  a.num_layers = layers;
  a.bidirectional = true;
  return a;
}

// Weights of a call by name, in the order of the operands.
std::vector<std::pair<std::string, Array>> weights(const LstmAttrs& a, int64_t input,
                                                   DType dtype = kF32) {
  const LstmSizes<int64_t> n(a, Dims{1, 1, input});
  const int64_t gates = n.blocks() * n.gates();
  return {{"w_ih", numbers({n.input_offset(n.blocks())}, 1, dtype)},
          {"w_hh", numbers({gates * a.hidden_size}, 2, dtype)},
          {"bias", numbers({gates}, 3, dtype)}};
}

void expect_bits(const std::vector<Array>& got, const std::vector<Array>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(got[i].same_bits(expected[i])) << "result " << i;
  }
}

// The weights are inputs behind the others, or params that the session holds.
struct Model {
  Graph graph{"lstm"};
  std::vector<std::pair<std::string, Array>> w;

  Model(const LstmAttrs& a, const TensorType& x, bool frozen, bool lengths = false)
      : w(weights(a, x.shape[2].value(), x.dtype)) {
    Builder b(graph);
    const Value in = input(b, "x", x.dtype, x.shape);
    LstmExtras extras;
    if (lengths) extras.lengths = input(b, "lengths", kI64, {x.shape[0]});
    std::vector<Value> v;
    for (const auto& [name, array] : w) {
      const Shape shape = array.type().shape;
      v.push_back(frozen ? param(b, name, x.dtype, shape) : input(b, name, x.dtype, shape));
    }
    const LstmResults r = lstm(b, in, v[0], v[1], v[2], a, extras);
    graph.add_output("y", r.y);
    graph.add_output("h", r.h);
    graph.add_output("c", r.c);
  }

  std::vector<Array> with_weights(std::initializer_list<Array> inputs) const {
    std::vector<Array> all;
    for (const Array& x : inputs) all.push_back(x);
    for (const auto& [name, array] : w) all.push_back(array);
    return all;
  }
};

TEST(Lstm, FrozenWeightsGiveTheSameBits) {
  for (const DType dtype : {kF32, DType::kBF16, DType::kF64}) {
    for (const int64_t hidden : {5, 291}) {  // groups of sequences, shared steps
      const LstmAttrs a = both_ways(hidden, 2);
      const Array x = numbers({2, 3, 4}, 9, dtype);
      const Model frozen(a, x.type(), true), given(a, x.type(), false);
      Session session(cpu_device());
      for (const auto& [name, array] : frozen.w) session.weights().set(name, array);
      const std::array inputs{x};
      expect_bits(session.compile(frozen.graph).run(inputs),
                  session.compile(given.graph).run(given.with_weights({x})));
    }
  }
}

// The kernel adds in the order of the decomposition.
TEST(Lstm, BitsOfTheDecomposition) {
  const LstmAttrs a = both_ways(37, 2);
  const Array x = numbers({9, 5, 13}, 4);
  const Model model(a, x.type(), false);
  const std::vector<Array> inputs = model.with_weights({x});
  std::vector<TensorType> types;
  types.reserve(inputs.size());
  for (const Array& i : inputs) types.push_back(i.type());
  const Graph body = expand_to_graph(kLstmOp, Attrs::of(kLstmOp.fields, a), types);
  Session session(cpu_device());
  expect_bits(session.compile(model.graph).run(inputs), session.compile(body).run(inputs));
}

// One plan for each set of sizes. A sequence is the same alone and among others, also where other
// numbers of them are computed in another way.
TEST(Lstm, SequencesDoNotDependOnTheBatch) {
  LstmAttrs a;
  a.hidden_size = 96;
  const Dim n = Dim::symbol("n"), steps = Dim::symbol("s");
  const Model model(a, {kF32, {n, steps, Dim(8)}}, false);
  EXPECT_EQ(model.graph.type(model.graph.outputs()[1].value).shape, (Shape{Dim(1), n, Dim(96)}));
  Session session(cpu_device());
  Executable e = session.compile(model.graph);
  const Array x = numbers({300, 3, 8}, 5);
  const Array all = e.run(model.with_weights({x}))[0];
  for (const int64_t count : {1, 20, 77}) {
    Array some = Array::uninitialized(kF32, {count, 3, 8});
    std::copy_n(x.data<float>().begin(), count * 24, some.mutable_data<float>().begin());
    const Array y = e.run(model.with_weights({some}))[0];
    EXPECT_TRUE(
        std::equal(y.data<float>().begin(), y.data<float>().end(), all.data<float>().begin()))
        << count;
  }
}

TEST(Lstm, OnePlanForBoundedSizes) {
  LstmAttrs a = both_ways(6, 2);
  const Dim n = Dim::symbol("n");
  const auto lengths = [](int64_t batch, int64_t steps) {
    std::vector<int64_t> values;
    for (int64_t b = 0; b < batch; ++b) values.push_back(steps - b % (steps + 1));
    return Array::from<int64_t>(values, {batch});
  };
  for (const bool of_batch : {true, false}) {
    for (const bool limited : {true, false}) {
      const TensorType x{kF32, {of_batch ? n : Dim(3), of_batch ? Dim(3) : n, Dim(2)}};
      const Model model(a, x, false, limited);
      CompileOptions options;
      options.bounds = {{"n", 19}};
      options.guard_zones = true;
      Session session(cpu_device());
      Executable bounded = session.compile(model.graph, options);
      Executable exact = session.compile(model.graph);
      for (const int64_t size : {19, 16, 5, 1, 0}) {
        const Dims dims{of_batch ? size : 3, of_batch ? 3 : size, 2};
        const Array values = numbers(dims, 6);
        const std::vector<Array> inputs =
            limited ? model.with_weights({values, lengths(dims[0], dims[1])})
                    : model.with_weights({values});
        SCOPED_TRACE(size);
        expect_bits(bounded.run(inputs), exact.run(inputs));
      }
      EXPECT_EQ(bounded.compiles(), 1);
    }
  }
}

TEST(Lstm, LengthsOutsideOfTheSequenceAreErrors) {
  LstmAttrs a;
  a.hidden_size = 2;
  const Model model(a, {kF32, {2, 3, 1}}, false, true);
  Session session(cpu_device());
  Executable e = session.compile(model.graph);
  for (const int64_t wrong : {-1, 4}) {
    const Array lengths = Array::from<int64_t>(std::vector<int64_t>{3, wrong}, {2});
    try {
      e.run(model.with_weights({numbers({2, 3, 1}, 1), lengths}));
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      const std::string expected = fmt::format("lengths[1] is {}, expected 0 to 3", wrong);
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  }
  const Array lengths = Array::from<int64_t>(std::vector<int64_t>{3, 0}, {2});
  EXPECT_NO_THROW(e.run(model.with_weights({numbers({2, 3, 1}, 1), lengths})));
}

// NaN past the end of a sequence stays out of all gradients.
TEST(Lstm, GradientsIgnoreWhatStandsPastTheEnd) {
  const LstmAttrs a = both_ways(3, 2);
  Model model(a, {kF32, {2, 4, 2}}, false, true);
  Builder b(model.graph);
  model.graph.add_output("loss", sum(b, model.graph.outputs()[0].value, {0, 1, 2}));
  const std::vector<std::string> wrt = {"x", "w_ih", "w_hh", "bias"};
  const Graph g = grad(model.graph, "loss", {"x", "w_ih", "w_hh", "bias"});
  Array x = numbers({2, 4, 2}, 1);
  const Array lengths = Array::from<int64_t>(std::vector<int64_t>{2, 4}, {2});
  Session session(cpu_device());
  Executable e = session.compile(g);
  const std::vector<Array> expected = e.run(model.with_weights({x, lengths}));
  for (int64_t i = 4; i < 8; ++i) {
    x.mutable_data<float>()[size_t(i)] = std::numeric_limits<float>::quiet_NaN();
  }
  const std::vector<Array> got = e.run(model.with_weights({x, lengths}));
  // The last outputs are the gradients, whatever comes before them.
  for (size_t i = got.size() - wrt.size(); i < got.size(); ++i) {
    EXPECT_TRUE(got[i].same_bits(expected[i])) << i;
    for (int64_t k = 0; k < got[i].num_elements(); ++k) EXPECT_TRUE(std::isfinite(got[i].at(k)));
  }
}

TEST(Lstm, StatesComeTogether) {
  Graph g;
  Builder b(g);
  LstmAttrs a;
  a.hidden_size = 1;
  const Value x = input(b, "x", kF32, {1, 1, 1}), w = input(b, "w", kF32, {4});
  LstmExtras extras;
  extras.c0 = input(b, "c0", kF32, {1, 1, 1});
  EXPECT_THROW(lstm(b, x, w, w, w, a, extras), Error);
}

}  // namespace
}  // namespace rlx
