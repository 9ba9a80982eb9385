// Random graphs through the compiler. Whatever the optimizer, the layout pass and the threads do,
// the bits stay; the reference and the decompositions agree up to rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"
#include "rlx/ir/leaf.h"
#include "rlx/ir/serialize.h"
#include "rlx/ir/verify.h"
#include "rlx/ops/activation.h"
#include "rlx/ops/binary.h"
#include "rlx/ops/build.h"
#include "rlx/ops/compare.h"
#include "rlx/ops/conv.h"
#include "rlx/ops/dot_general.h"
#include "rlx/ops/pool.h"
#include "rlx/ops/reduce.h"
#include "rlx/ops/table.h"
#include "rlx/runtime/session.h"
#include "rlx/transform/grad.h"
#include "rlx/transform/jvp.h"
#include "rlx/transform/vmap.h"

namespace rlx {
namespace {

constexpr int64_t kMostElements = 600;

// The same numbers with every standard library.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return int64_t(engine_() % uint64_t(n)); }
  bool once_in(int64_t n) { return below(n) == 0; }
  double number() { return double(below(2001) - 1000) / 512; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[size_t(below(int64_t(from.size())))];
  }

 private:
  std::mt19937_64 engine_;
};

Array random_array(Dice& dice, DType dtype, const Dims& shape) {
  Array wide = Array::uninitialized(DType::kF64, shape);
  for (double& x : wide.mutable_data<double>()) x = dice.number();
  if (dtype == DType::kF64) return wide;
  Array a = Array::uninitialized(dtype, shape);
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    a.mutable_data<float>()[size_t(i)] = float(wide.at(i));
  }
  return a;
}

class Generator {
 public:
  Generator(Graph& graph, uint64_t seed, DType dtype) : b_(graph), dice_(seed), dtype_(dtype) {}

  void generate(int calls) {
    for (int64_t i = dice_.below(3); i >= 0; --i) {
      values_.push_back(input(b_, fmt::format("x{}", i), dtype_, random_shape(4)));
    }
    if (dice_.once_in(2)) {
      values_.push_back(param(b_, "frozen", dtype_, random_shape(3)));
    }
    if (dice_.once_in(3)) {
      values_.push_back(param(b_, "state", dtype_, random_shape(3), true));
    }
    for (int i = 0; i < calls; ++i) add_call();
    add_outputs();
  }

 private:
  Dims dims(Value v) const { return b_.shape(v).static_dims(); }
  int64_t rank(Value v) const { return b_.shape(v).rank(); }

  Shape random_shape(int64_t most_axes) {
    Shape s;
    for (int64_t i = dice_.below(most_axes + 1); i > 0; --i) s.push_back(random_size());
    return s;
  }
  int64_t random_size() {
    if (dice_.once_in(40)) return 0;
    return dice_.once_in(6) ? 1 + dice_.below(17) : 1 + dice_.below(5);
  }
  int64_t random_axis(Value v) { return dice_.below(rank(v)); }

  // Prefers the latest values, so that graphs are deep.
  Value pick() {
    const int64_t n = int64_t(values_.size());
    const int64_t back = dice_.once_in(3) ? dice_.below(n) : dice_.below(std::min<int64_t>(n, 3));
    return values_[size_t(n - 1 - back)];
  }
  Value pick_ranked(int64_t least) {
    Value v = pick();
    while (rank(v) < least) v = unsqueeze(b_, v, dice_.below(rank(v) + 1));
    return v;
  }
  std::vector<int64_t> random_order(int64_t n) {
    std::vector<int64_t> order(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) order[size_t(i)] = i;
    for (int64_t i = n; i > 1; --i) std::swap(order[size_t(i - 1)], order[size_t(dice_.below(i))]);
    return order;
  }

  void add_call() {
    Value v = make_call();
    if (b_.shape(v).num_elements().value() > kMostElements) {
      v = narrow(b_, v, 0, 0, std::min<int64_t>(dims(v)[0], 2));
    }
    if (b_.shape(v).num_elements().value() <= kMostElements) values_.push_back(v);
  }

  Value make_call() {
    switch (dice_.below(16)) {
      case 0:
      case 1:
        return make_activation();
      case 2:
      case 3:
        return make_binary();
      case 4:
        return make_reduce();
      case 5:
        return make_product();
      case 6:
        return make_reshape();
      case 7: {
        const Value v = pick_ranked(1);
        return transpose(b_, v, random_order(rank(v)));
      }
      case 8:
        return make_narrow();
      case 9:
        return make_concat();
      case 10:
        return make_expand();
      case 11: {
        const Value v = pick_ranked(1);
        return softmax(b_, v, random_axis(v));
      }
      case 12:
        return make_layer_norm();
      case 13:
        return make_conv();
      case 14:
        return make_pool();
      default:
        return dice_.once_in(2) ? make_gather() : make_where();
    }
  }

  Value make_activation() {
    using enum ActivationKind;
    static const std::vector<ActivationKind> kinds{
        kGelu, kGeluApprox, kSilu,     kRelu, kSigmoid,     kTanh, kNeg,      kAbs,       kSin,
        kCos,  kAtan,       kSoftplus, kErf,  kHardSigmoid, kMish, kSoftsign, kLogSigmoid};
    return activation(b_, dice_.pick(kinds), pick());
  }

  // Something that broadcasts with v: itself, a part of it, a number, or another value.
  Value partner(Value v) {
    switch (dice_.below(5)) {
      case 0:
        return v;
      case 1:
        return splat(b_, dtype_, Shape(), dice_.pick(std::vector<double>{0, -0.0, 1, -1, 0.5, 2}));
      case 2:
        if (rank(v) == 0) return v;
        return mean(b_, v, {random_axis(v)}, true);
      case 3:
        if (rank(v) == 0) return v;
        return constant(b_, random_array(dice_, dtype_, {dims(v).back()}));
      default:
        for (size_t i = values_.size(); i-- > 0;) {
          if (values_[i] != v && b_.shape(values_[i]) == b_.shape(v)) return values_[i];
        }
        return v;
    }
  }
  Value make_binary() {
    using enum BinaryKind;
    Value x = pick();
    Value y = partner(x);
    if (dice_.once_in(2)) std::swap(x, y);
    const auto kind = dice_.pick(std::vector{kAdd, kSub, kMul, kMax, kMin, kDiv});
    if (kind == kMul) x = tanh(b_, x);
    if (kind == kDiv) y = add(b_, activation(b_, ActivationKind::kAbs, y), 1);
    return binary(b_, kind, x, y);
  }

  Value make_reduce() {
    using enum ReduceKind;
    const Value v = pick_ranked(1);
    std::vector<int64_t> axes = random_order(rank(v));
    axes.resize(size_t(dice_.below(rank(v) + 1)));
    auto kind = dice_.pick(std::vector{kSum, kMean, kMax, kMin, kProd});
    // Of nothing there is no mean, and the largest of nothing is infinite.
    for (int64_t axis : axes) kind = dims(v)[size_t(axis)] == 0 ? kSum : kind;
    return reduce(b_, kind, kind == kProd ? tanh(b_, v) : v, axes, dice_.once_in(2));
  }

  Value make_product() {
    const Value v = pick_ranked(2);
    if (dice_.once_in(3)) return matmul(b_, v, swap_last_axes(b_, v));
    if (dice_.once_in(3)) {
      const int64_t axis = random_axis(v), batch = (axis + 1) % rank(v);
      return dot_general(b_, v, v, {{axis}, {axis}, {batch}, {batch}});
    }
    const Dims shape{dims(v).back(), 1 + dice_.below(9)};
    const Value w = dice_.once_in(2)
                        ? constant(b_, random_array(dice_, dtype_, shape))
                        : param(b_, fmt::format("w{}", params_++), dtype_,
                                Shape(std::span<const int64_t>(shape)), dice_.once_in(4));
    return matmul(b_, v, w);
  }

  Value make_reshape() {
    const Value v = pick();
    Dims sizes = dims(v);
    if (dice_.once_in(2)) std::ranges::reverse(sizes);
    if (sizes.size() > 1 && dice_.once_in(2)) {
      const size_t at = size_t(dice_.below(int64_t(sizes.size()) - 1));
      sizes[at] *= sizes[at + 1];
      sizes.erase(sizes.begin() + int64_t(at) + 1);
    }
    if (!sizes.empty() && dice_.once_in(2)) {
      const size_t at = size_t(dice_.below(int64_t(sizes.size())));
      for (int64_t part : {2, 3, 5}) {
        if (sizes[at] % part != 0) continue;
        sizes[at] /= part;
        sizes.insert(sizes.begin() + int64_t(at), part);
        break;
      }
    }
    return reshape(b_, v, Shape(std::span<const int64_t>(sizes)));
  }

  Value make_narrow() {
    const Value v = pick_ranked(1);
    const int64_t axis = random_axis(v), size = dims(v)[size_t(axis)];
    const int64_t start = dice_.below(size + 1);
    return narrow(b_, v, axis, start, size == start ? 0 : 1 + dice_.below(size - start));
  }

  Value make_concat() {
    const Value v = pick_ranked(1);
    const int64_t axis = random_axis(v);
    std::vector<Value> parts{v};
    if (dice_.once_in(2)) parts.push_back(tanh(b_, v));
    if (dice_.once_in(2)) parts.push_back(narrow(b_, v, axis, 0, dims(v)[size_t(axis)] / 2));
    if (dice_.once_in(3)) parts.push_back(v);
    if (dice_.once_in(3)) parts.insert(parts.begin(), pad_axis(b_, v, axis, 1, 2, 0.25));
    return concat(b_, parts, axis);
  }

  Value make_expand() {
    Value v = pick();
    if (rank(v) > 4) return v;
    const int64_t axis = dice_.below(rank(v) + 1);
    Shape shape = b_.shape(v);
    shape.insert(axis, dice_.once_in(20) ? 0 : 1 + dice_.below(4));
    return expand(b_, unsqueeze(b_, v, axis), shape);
  }

  Value make_layer_norm() {
    const Value v = pick_ranked(1);
    const int64_t axis = random_axis(v);
    Dims row = dims(v);
    row.erase(row.begin(), row.begin() + axis);
    return layer_norm(b_, v, constant(b_, random_array(dice_, dtype_, row)),
                      constant(b_, random_array(dice_, dtype_, row)), axis, 0.1);
  }

  // As [N, C, spatial...] with 1 to 3 spatial axes.
  Value image() {
    Value v = pick_ranked(3);
    while (rank(v) > 5) v = sum(b_, v, {0});
    return v;
  }
  bool has_empty_axis(Value v) const {
    const Dims sizes = dims(v);
    return std::ranges::count(sizes, 0) > 0;
  }

  Value make_conv() {
    const Value v = image();
    if (has_empty_axis(v)) return v;
    const int64_t channels = dims(v)[1];
    ConvAttrs attrs;
    const int64_t groups = dice_.once_in(2) ? channels : 1;
    attrs.groups = groups;
    Dims weight{groups * (1 + dice_.below(3)), channels / groups};
    for (int64_t i = 2; i < rank(v); ++i) {
      attrs.stride.push_back(1 + dice_.below(2));
      attrs.dilation.push_back(1 + dice_.below(2));
      attrs.padding.push_back(dice_.below(4));
      const int64_t cells = dims(v)[size_t(i)] + 2 * attrs.padding.back();
      weight.push_back(1 + dice_.below(std::min<int64_t>(3, (cells - 1) / 2 + 1)));
    }
    return conv(b_, v, constant(b_, random_array(dice_, dtype_, weight)), attrs);
  }

  Value make_pool() {
    using enum PoolKind;
    const Value v = image();
    if (has_empty_axis(v)) return v;
    PoolAttrs attrs;
    attrs.kind = dice_.pick(std::vector{kMax, kMean, kSum, kMin, kProd});
    attrs.count_include_pad = dice_.once_in(2);
    for (int64_t i = 2; i < rank(v); ++i) {
      attrs.kernel_size.push_back(1 + dice_.below(std::min<int64_t>(3, dims(v)[size_t(i)])));
      attrs.stride.push_back(1 + dice_.below(3));
      attrs.padding.push_back(dice_.below(attrs.kernel_size.back()));
    }
    return pool(b_, tanh(b_, v), attrs);
  }

  Value make_gather() {
    const Value v = pick_ranked(1);
    const int64_t axis = random_axis(v), size = dims(v)[size_t(axis)];
    if (size == 0) return v;
    std::vector<int64_t> indices;
    for (int64_t i = dice_.below(5); i >= 0; --i) indices.push_back(dice_.below(2 * size) - size);
    const Dims shape{int64_t(indices.size())};
    return gather(
        b_, v, constant(b_, Array::from<int64_t>(std::span<const int64_t>(indices), shape)), axis);
  }

  // The condition compares an integer, which rounding does not turn.
  Value make_where() {
    const Value v = pick_ranked(1);
    const Value count = iota(b_, DType::kI32, b_.shape(v), random_axis(v));
    const Value condition =
        less(b_, count, splat(b_, DType::kI32, Shape(), double(dice_.below(4))));
    return where(b_, condition, v, partner(v));
  }

  void add_outputs() {
    Graph& g = b_.graph();
    for (int64_t i = dice_.below(4); i >= 0; --i) {
      g.add_output(fmt::format("y{}", i), dice_.once_in(6) ? dice_.pick(values_) : pick());
    }
    for (Value p : g.params()) {
      if (!g.node(p).attrs.as<ParamAttrs>().is_mutable) continue;
      for (size_t i = values_.size(); i-- > 0;) {
        if (b_.shape(values_[i]) != b_.shape(p)) continue;
        g.add_update(g.name_of(p), values_[i]);
        break;
      }
    }
  }

  Builder b_;
  Dice dice_;
  DType dtype_;
  std::vector<Value> values_;
  int params_ = 0;
};

struct Result {
  std::vector<Array> outputs;
  std::map<std::string, Array> params;
};

struct Case {
  Graph graph;
  std::vector<Array> inputs;
  std::map<std::string, Array> params;
};

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
  Case c;
  Generator(c.graph, seed, dtype).generate(calls);
  Dice dice(seed + 1);
  for (Value v : c.graph.inputs()) {
    c.inputs.push_back(random_array(dice, dtype, c.graph.type(v).shape.static_dims()));
  }
  for (Value v : c.graph.params()) {
    c.params[c.graph.name_of(v)] = random_array(dice, dtype, c.graph.type(v).shape.static_dims());
  }
  return c;
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
