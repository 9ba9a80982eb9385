// Random graphs through the compiler. Whatever the optimizer, the layout pass and the threads do,
// the bits stay; the reference and the decompositions agree up to rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"
#include "rlx/ir/serialize.h"
#include "rlx/ir/verify.h"
#include "rlx/ops/table.h"
#include "rlx/runtime/session.h"
#include "rlx/testing/random_graph.h"
#include "rlx/transform/grad.h"
#include "rlx/transform/jvp.h"
#include "rlx/transform/vmap.h"

namespace rlx {
namespace {

struct Result {
  std::vector<Array> outputs;
  std::map<std::string, Array> params;
};

using Case = RandomGraph;

ThreadPool& pool_of_threads() {
  static ThreadPool pool(2);
  return pool;
}

Result run(const Case& c, const CompileOptions& compile, int threads) {
  SessionOptions options;
  options.threads = threads;
  options.executor = &pool_of_threads();
  Session session(cpu_device(), options);
  session.weights().set(c.params);
  Executable e = session.compile(c.graph, compile);
  Result r;
  r.outputs = e.run(c.inputs);
  for (const auto& [name, value] : c.params) r.params[name] = session.weights().get(name);
  return r;
}

::testing::AssertionResult same(const Result& a, const Result& b) {
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    if (!a.outputs[i].same_bits(b.outputs[i])) {
      return ::testing::AssertionFailure() << "output " << i;
    }
  }
  for (const auto& [name, value] : a.params) {
    if (!value.same_bits(b.params.at(name)))
      return ::testing::AssertionFailure() << "param " << name;
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult near(const std::vector<Array>& got, const std::vector<Array>& want,
                                double tolerance) {
  for (size_t i = 0; i < want.size(); ++i) {
    double scale = 1;
    for (int64_t k = 0; k < want[i].num_elements(); ++k) {
      scale = std::max(scale, std::abs(want[i].at(k)));
    }
    for (int64_t k = 0; k < want[i].num_elements(); ++k) {
      const double a = got[i].at(k), b = want[i].at(k);
      if (std::abs(a - b) <= tolerance * scale || a == b || (std::isnan(a) && std::isnan(b))) {
        continue;
      }
      return ::testing::AssertionFailure()
             << "output " << i << " element " << k << ": " << a << ", not " << b;
    }
  }
  return ::testing::AssertionSuccess();
}

std::vector<Array> reference_outputs(const Case& c) {
  std::map<std::string, reference::Tensor> inputs, params;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    inputs[c.graph.name_of(c.graph.inputs()[i])] = reference::widen(c.inputs[i]);
  }
  for (const auto& [name, value] : c.params) params[name] = reference::widen(value);
  std::vector<Array> r;
  for (const auto& t : reference::evaluate(c.graph, inputs, params)) {
    r.push_back(reference::narrow(t));
  }
  return r;
}

Case make_case(uint64_t seed, DType dtype, int calls) {
  return random_graph({seed, dtype, calls, RandomGraphStyle::kAnything});
}

void check_case(uint64_t seed, DType dtype) {
  SCOPED_TRACE(fmt::format("seed {} {}", seed, to_string(dtype)));
  const Case c = make_case(seed, dtype, 4 + int(seed % 23));
  SCOPED_TRACE(print(c.graph, {.max_elements = 4}));
  ASSERT_NO_THROW(verify(c.graph));
  EXPECT_EQ(parse(print(c.graph), find_op), c.graph);
  EXPECT_EQ(deserialize(serialize(c.graph), find_op), c.graph);

  CompileOptions plain;
  plain.optimize = false;
  plain.layout = LayoutPolicy::kAlwaysCopy;
  plain.guard_zones = true;
  const Result expected = run(c, plain, 1);
  const double tolerance = dtype == DType::kF64 ? 1e-9 : 2e-3;
  EXPECT_TRUE(near(expected.outputs, reference_outputs(c), tolerance));

  EXPECT_TRUE(same(run(c, {}, 1), expected)) << "optimized";
  EXPECT_TRUE(same(run(c, {}, 3), expected)) << "on three threads";
  CompileOptions views;
  views.layout = LayoutPolicy::kNeverCopy;
  views.guard_zones = true;
  EXPECT_TRUE(same(run(c, views, 3), expected)) << "without copies";
  CompileOptions decomposed;
  decomposed.legalize.force_decompose = true;
  decomposed.guard_zones = true;
  EXPECT_TRUE(near(run(c, decomposed, 3).outputs, expected.outputs, tolerance)) << "decomposed";
}

std::vector<std::string> input_names(const Graph& g) {
  std::vector<std::string> names;
  for (Value v : g.inputs()) names.push_back(g.name_of(v));
  return names;
}

Graph without_updates(const Graph& g) {
  Graph r(g.name());
  for (const Node& n : g.nodes()) r.append(n);
  for (const Output& o : g.outputs()) r.add_output(o.name, o.value);
  return r;
}

std::vector<Array> random_like(Dice& dice, const std::vector<Array>& arrays) {
  std::vector<Array> r;
  r.reserve(arrays.size());
  for (const Array& a : arrays) r.push_back(random_array(dice, a.dtype(), a.shape()));
  return r;
}

Case with_inputs(Graph graph, const Case& c, const std::vector<Array>& more) {
  Case r{std::move(graph), c.inputs, c.params};
  r.inputs.insert(r.inputs.end(), more.begin(), more.end());
  return r;
}

// Adds the products of a[i] and b[first + i] to sum, their magnitudes to scale.
void add_products(const std::vector<Array>& a, const std::vector<Array>& b, size_t first,
                  double* sum, double* scale) {
  for (size_t i = 0; i < a.size(); ++i) {
    for (int64_t k = 0; k < a[i].num_elements(); ++k) {
      const double p = a[i].at(k) * b[first + i].at(k);
      *sum += p;
      *scale += std::abs(p);
    }
  }
}

// The part of example k, as a tensor of this shape.
Array example_of(const Array& batch, const Dims& shape, int64_t k) {
  Array part = Array::uninitialized(DType::kF64, shape);
  const int64_t n = part.num_elements();
  for (int64_t i = 0; i < n; ++i) part.mutable_data<double>()[size_t(i)] = batch.at(k * n + i);
  return part;
}

// Batches some inputs of the case, the same ones for every example.
void check_batching(const Case& c, int64_t size, Dice& dice) {
  std::vector<std::string> batched;
  Case all{Graph(), c.inputs, c.params};
  std::vector<uint8_t> is_batched(c.inputs.size(), 0);
  const std::vector<std::string> names = input_names(c.graph);
  for (size_t i = 0; i < names.size(); ++i) {
    if (dice.once_in(3)) continue;
    is_batched[i] = 1;
    batched.push_back(names[i]);
    Dims shape = c.inputs[i].shape();
    shape.insert(shape.begin(), size);
    all.inputs[i] = random_array(dice, DType::kF64, shape);
  }
  all.graph = vmap(c.graph, size, batched);
  const std::vector<Array> got = run(all, {}, 1).outputs;
  for (int64_t k = 0; k < size; ++k) {
    Case one = c;
    for (size_t i = 0; i < names.size(); ++i) {
      if (is_batched[i]) one.inputs[i] = example_of(all.inputs[i], c.inputs[i].shape(), k);
    }
    const std::vector<Array> want = run(one, {}, 1).outputs;
    std::vector<Array> part;
    for (size_t i = 0; i < want.size(); ++i) part.push_back(example_of(got[i], want[i].shape(), k));
    EXPECT_TRUE(near(part, want, 1e-9)) << "example " << k << " of " << size;
  }
}

// <ct, J t> of forward mode is <J^T ct, t> of reverse mode; a batch of backward graphs is what each
// example gives alone.
void check_transforms(uint64_t seed) {
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Case c = make_case(seed, DType::kF64, 3 + int(seed % 12));
  c.graph = without_updates(c.graph);
  SCOPED_TRACE(print(c.graph, {.max_elements = 4}));
  const std::vector<std::string> names = input_names(c.graph);
  Dice dice(seed + 2);
  const std::vector<Array> y = run(c, {}, 1).outputs;
  const std::vector<Array> tangents = random_like(dice, c.inputs);
  const std::vector<Array> cotangents = random_like(dice, y);
  const Case backward = with_inputs(vjp(c.graph, names), c, cotangents);

  double forward_sum = 0, backward_sum = 0, scale = 1;
  add_products(cotangents, run(with_inputs(jvp(c.graph, names), c, tangents), {}, 1).outputs,
               y.size(), &forward_sum, &scale);
  add_products(tangents, run(backward, {}, 1).outputs, y.size(), &backward_sum, &scale);
  ASSERT_TRUE(std::isfinite(forward_sum));
  EXPECT_NEAR(forward_sum, backward_sum, 1e-9 * scale);
  for (int64_t size : {0, 1, 3}) check_batching(backward, size, dice);
}

TEST(RandomGraph, KeepsItsValuesWhateverTheCompilerDoes) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    check_case(seed, seed % 2 == 0 ? DType::kF64 : DType::kF32);
    if (HasFatalFailure()) break;
  }
}

TEST(RandomGraph, DerivativesAgreeAndBatch) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    check_transforms(seed);
    if (HasFatalFailure()) break;
  }
}

}  // namespace
}  // namespace rlx
