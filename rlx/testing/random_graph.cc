#include "rlx/testing/random_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <type_traits>

#include "rlx/ir/leaf.h"
#include "rlx/ops/activation.h"
#include "rlx/ops/binary.h"
#include "rlx/ops/build.h"
#include "rlx/ops/conv.h"
#include "rlx/ops/dot_general.h"
#include "rlx/ops/pool.h"
#include "rlx/ops/reduce.h"
#include "rlx/ops/rms_norm.h"
#include "rlx/testing/graph_generator.h"

namespace rlx {

GraphGenerator::GraphGenerator(Builder& b, Dice& dice, const RandomGraphOptions& options)
    : b_(b), dice_(dice), options_(options), dtype_(options.dtype) {}

void GraphGenerator::generate() {
  for (int64_t i = dice_.below(3); i >= 0; --i) {
    Shape shape = random_shape(options_.symbolic ? 2 : 4);
    if (options_.symbolic && (i == 0 || dice_.once_in(2))) {
      shape.insert(dice_.below(shape.rank() + 1), Dim::symbol(kRandomSymbol));
    }
    values_.push_back(input(b_, fmt::format("x{}", i), dtype_, shape));
  }
  if (everything()) counts_.push_back(input(b_, "count", DType::kI64, {}));
  if (dice_.once_in(2)) {
    values_.push_back(param(b_, "frozen", dtype_, random_shape(3)));
  }
  if (dice_.once_in(3)) {
    values_.push_back(param(b_, "state", dtype_, random_shape(3), true));
  }
  for (int i = 0; i < options_.calls; ++i) add_call();
  add_outputs();
}

int64_t GraphGenerator::elements(Value v) const {
  int64_t n = 1;
  for (const Dim& d : b_.shape(v)) {
    n *= d.evaluate({{std::string(kRandomSymbol), kRandomSymbolMost}});
  }
  return n;
}

bool GraphGenerator::has_empty_axis(Value v) const {
  return std::ranges::any_of(b_.shape(v), [](const Dim& d) { return d.is(0); });
}

Shape GraphGenerator::random_shape(int64_t most_axes) {
  Shape s;
  for (int64_t i = dice_.below(most_axes + 1); i > 0; --i) s.push_back(random_size());
  return s;
}

int64_t GraphGenerator::random_size() {
  if (dice_.once_in(40)) return 0;
  if (fusion() && dice_.once_in(3)) return 8 + dice_.below(70);
  return dice_.once_in(6) ? 1 + dice_.below(17) : 1 + dice_.below(5);
}

Value GraphGenerator::pick() {
  const int64_t n = int64_t(values_.size());
  const int64_t back = dice_.once_in(3) ? dice_.below(n) : dice_.below(std::min<int64_t>(n, 3));
  const Value v = values_[size_t(n - 1 - back)];
  if (takes_symbols_ || b_.shape(v).is_static()) return v;
  std::vector<Value> others;
  for (Value o : values_) {
    if (b_.shape(o).is_static()) others.push_back(o);
  }
  return others.empty() ? random_constant({2, 3}) : dice_.pick(others);
}

Value GraphGenerator::pick_ranked(int64_t least) {
  Value v = pick();
  while (rank(v) < least) v = unsqueeze(b_, v, dice_.below(rank(v) + 1));
  return v;
}

std::vector<int64_t> GraphGenerator::random_order(int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) order[size_t(i)] = i;
  for (int64_t i = n; i > 1; --i) std::swap(order[size_t(i - 1)], order[size_t(dice_.below(i))]);
  return order;
}

Value GraphGenerator::random_constant(const Dims& shape) {
  return constant(b_, random_array(dice_, dtype_, shape));
}

Value GraphGenerator::count(int64_t value) { return scalar(b_, DType::kI64, double(value)); }

Value GraphGenerator::at_most(Value n, int64_t most) { return minimum(b_, n, count(most)); }

Value GraphGenerator::keep(const std::vector<Value>& results) {
  for (size_t i = 1; i < results.size(); ++i) {
    if (b_.dtype(results[i]) == dtype_ && fits(results[i])) values_.push_back(results[i]);
  }
  return results[0];
}

void GraphGenerator::add_call() {
  Value v = make_call();
  if (!fits(v) && b_.shape(v)[0].is_static()) {
    v = narrow(b_, v, 0, 0, std::min<int64_t>(b_.shape(v)[0].value(), 2));
  }
  if (fits(v)) values_.push_back(v);
}

Value GraphGenerator::make_activation() {
  return activation(b_, dice_.pick(smooth_kinds()), pick());
}

const std::vector<ActivationKind>& GraphGenerator::smooth_kinds() {
  using enum ActivationKind;
  static const std::vector<ActivationKind> kinds{
      kGelu, kGeluApprox, kSilu,     kRelu, kSigmoid,     kTanh, kNeg,      kAbs,       kSin,
      kCos,  kAtan,       kSoftplus, kErf,  kHardSigmoid, kMish, kSoftsign, kLogSigmoid};
  return kinds;
}

// Something that broadcasts with v: itself, a part of it, a number, or another value.
Value GraphGenerator::partner(Value v) {
  switch (dice_.below(5)) {
    case 0:
      return v;
    case 1:
      return splat(b_, dtype_, Shape(), dice_.pick(std::vector<double>{0, -0.0, 1, -1, 0.5, 2}));
    case 2:
      if (rank(v) == 0) return v;
      return mean(b_, v, {random_axis(v)}, true);
    case 3:
      if (rank(v) == 0 || !b_.shape(v)[rank(v) - 1].is_static()) return v;
      return random_constant({b_.shape(v)[rank(v) - 1].value()});
    default:
      for (size_t i = values_.size(); i-- > 0;) {
        if (values_[i] != v && b_.shape(values_[i]) == b_.shape(v)) return values_[i];
      }
      return v;
  }
}

Value GraphGenerator::make_transpose() {
  const Value v = pick_ranked(1);
  return transpose(b_, v, random_order(rank(v)));
}

Value GraphGenerator::make_softmax() {
  const Value v = pick_ranked(1);
  return softmax(b_, v, fusion() && !dice_.once_in(3) ? -1 : random_axis(v));
}

// Some arithmetic in another type.
Value GraphGenerator::make_cast() {
  const Value v = pick();
  DType other = dice_.pick(std::vector{DType::kF32, DType::kF64, DType::kBF16, DType::kF16});
  if (options_.differentiable) other = DType::kF64;  // both modes round, at different places
  return cast(b_, tanh(b_, cast(b_, v, other)), dtype_);
}

Value GraphGenerator::make_derivative() {
  const Value x = pick();
  Value dy = partner(x);
  if (b_.shape(dy) != b_.shape(x)) dy = x;
  return activation_backward(b_, dice_.pick(smooth_kinds()), x, dy);
}

Value GraphGenerator::make_binary() {
  using enum BinaryKind;
  Value x = pick();
  Value y = partner(x);
  if (dice_.once_in(2)) std::swap(x, y);
  const auto kind = dice_.pick(std::vector{kAdd, kSub, kMul, kMax, kMin, kDiv});
  if (kind == kMul) x = tanh(b_, x);
  if (kind == kDiv) y = add(b_, activation(b_, ActivationKind::kAbs, y), 1);
  return binary(b_, kind, x, y);
}

Value GraphGenerator::make_reduce() {
  using enum ReduceKind;
  const Value v = pick_ranked(1);
  std::vector<int64_t> axes = random_order(rank(v));
  axes.resize(size_t(dice_.below(rank(v) + 1)));
  auto kind = dice_.pick(std::vector{kSum, kMean, kMax, kMin, kProd});
  // Of nothing there is no mean, and the largest of nothing is infinite.
  for (int64_t axis : axes) {
    if (b_.shape(v)[axis].is(0)) kind = kSum;
    sums_over_symbol_ |= !b_.shape(v)[axis].is_static();
  }
  return reduce(b_, kind, kind == kProd ? tanh(b_, v) : v, axes, dice_.once_in(2));
}

Value GraphGenerator::make_product() {
  const Value v = pick_ranked(2);
  sums_over_symbol_ |= !b_.shape(v).is_static();
  if (dice_.once_in(3)) return matmul(b_, v, swap_last_axes(b_, v));
  if (dice_.once_in(3)) {
    const int64_t axis = random_axis(v), batch = (axis + 1) % rank(v);
    return dot_general(b_, v, v, {{axis}, {axis}, {batch}, {batch}});
  }
  if (!b_.shape(v)[rank(v) - 1].is_static()) return v;
  const Dims shape{b_.shape(v)[rank(v) - 1].value(), 1 + dice_.below(9)};
  const Value w = depth_ > 0 || dice_.once_in(2)
                      ? random_constant(shape)
                      : param(b_, fmt::format("w{}", params_++), dtype_,
                              Shape(std::span<const int64_t>(shape)), dice_.once_in(4));
  return matmul(b_, v, w);
}

Value GraphGenerator::make_reshape() {
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

Value GraphGenerator::make_narrow() {
  const Value v = pick_ranked(1);
  const int64_t axis = random_axis(v), size = dims(v)[size_t(axis)];
  const int64_t start = dice_.below(size + 1);
  return narrow(b_, v, axis, start, size == start ? 0 : 1 + dice_.below(size - start));
}

Value GraphGenerator::make_concat() {
  const Value v = pick_ranked(1);
  const int64_t axis = random_axis(v);
  std::vector<Value> parts{v};
  if (dice_.once_in(2)) parts.push_back(tanh(b_, v));
  if (dice_.once_in(2)) parts.push_back(narrow(b_, v, axis, 0, floor_div(b_.shape(v)[axis], 2)));
  if (dice_.once_in(3)) parts.push_back(v);
  if (dice_.once_in(3)) parts.insert(parts.begin(), pad_axis(b_, v, axis, 1, 2, 0.25));
  return concat(b_, parts, axis);
}

Value GraphGenerator::make_expand() {
  Value v = pick();
  if (rank(v) > 4) return v;
  const int64_t axis = dice_.below(rank(v) + 1);
  Shape shape = b_.shape(v);
  shape.insert(axis, dice_.once_in(20) ? 0 : 1 + dice_.below(4));
  return expand(b_, unsqueeze(b_, v, axis), shape);
}

Value GraphGenerator::make_layer_norm() {
  const Value v = pick_ranked(1);
  const int64_t axis = random_axis(v);
  const Shape row = b_.shape(v).slice(axis, rank(v));
  if (!row.is_static()) return v;
  const Value gamma = random_constant(row.static_dims());
  const Value beta = random_constant(row.static_dims());
  if (fusion() && dice_.once_in(2)) return rms_norm(b_, v, gamma, beta, axis, 0.1);
  return layer_norm(b_, v, gamma, beta, axis, 0.1);
}

// As [N, C, spatial...] with 1 to 3 spatial axes.
Value GraphGenerator::image() {
  Value v = pick_ranked(3);
  while (rank(v) > 5) v = sum(b_, v, {0});
  return v;
}

Value GraphGenerator::make_conv() {
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
  return conv(b_, v, random_constant(weight), attrs);
}

Value GraphGenerator::make_pool() {
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

Value GraphGenerator::make_gather() {
  const Value v = pick_ranked(1);
  const int64_t axis = random_axis(v);
  const Dim extent = b_.shape(v)[axis];
  if (!extent.is_static() || extent.is(0)) return v;
  const int64_t size = extent.value();
  std::vector<int64_t> indices;
  for (int64_t i = dice_.below(5); i >= 0; --i) indices.push_back(dice_.below(2 * size) - size);
  const Dims shape{int64_t(indices.size())};
  return gather(b_, v, constant(b_, Array::from<int64_t>(std::span<const int64_t>(indices), shape)),
                axis);
}

// The condition compares an integer, which rounding does not turn.
Value GraphGenerator::make_where() {
  const Value v = pick_ranked(1);
  const Value count = iota(b_, DType::kI32, b_.shape(v), random_axis(v));
  const Value condition = less(b_, count, splat(b_, DType::kI32, Shape(), double(dice_.below(4))));
  return where(b_, condition, v, partner(v));
}

void GraphGenerator::add_outputs() {
  Graph& g = b_.graph();
  for (int64_t i = dice_.below(4); i >= 0; --i) {
    g.add_output(fmt::format("y{}", i), dice_.once_in(6) ? dice_.pick(values_) : pick());
  }
  std::set<std::string> updated;
  for (const Update& u : updates_) {
    g.add_update(u.param, u.value);
    updated.insert(u.param);
  }
  for (Value p : g.params()) {
    if (!g.node(p).attrs.as<ParamAttrs>().is_mutable || updated.contains(g.name_of(p))) continue;
    for (size_t i = values_.size(); i-- > 0;) {
      if (b_.shape(values_[i]) != b_.shape(p)) continue;
      g.add_update(g.name_of(p), values_[i]);
      break;
    }
  }
}
// A way to make a call, how likely it is in each style, and whether it takes symbolic sizes.
struct GraphGenerator::Recipe {
  int anything, fusion, everything;
  bool symbols;
  Value (GraphGenerator::*make)();
};

const GraphGenerator::Recipe GraphGenerator::kRecipes[] = {
    {4, 12, 4, true, &GraphGenerator::make_activation},
    {4, 20, 6, true, &GraphGenerator::make_binary},
    {2, 4, 3, true, &GraphGenerator::make_reduce},
    {2, 6, 3, true, &GraphGenerator::make_product},
    {2, 1, 1, false, &GraphGenerator::make_reshape},
    {2, 1, 2, true, &GraphGenerator::make_transpose},
    {2, 1, 1, false, &GraphGenerator::make_narrow},
    {2, 1, 2, true, &GraphGenerator::make_concat},
    {2, 1, 1, true, &GraphGenerator::make_expand},
    {2, 4, 2, true, &GraphGenerator::make_softmax},
    {2, 4, 1, true, &GraphGenerator::make_layer_norm},
    {2, 3, 1, false, &GraphGenerator::make_conv},
    {2, 0, 1, false, &GraphGenerator::make_pool},
    {1, 0, 1, true, &GraphGenerator::make_gather},
    {1, 3, 2, true, &GraphGenerator::make_where},
    {0, 3, 1, true, &GraphGenerator::make_cast},
    {0, 3, 1, true, &GraphGenerator::make_derivative},
    {0, 0, 2, true, &GraphGenerator::make_rms_norm},
    {0, 0, 1, false, &GraphGenerator::make_norm_backward},
    {0, 0, 2, true, &GraphGenerator::make_sort},
    {0, 0, 2, true, &GraphGenerator::make_top_k},
    {0, 0, 1, false, &GraphGenerator::make_rope},
    {0, 0, 1, false, &GraphGenerator::make_attention},
    {0, 0, 3, false, &GraphGenerator::make_window},
    {0, 0, 2, false, &GraphGenerator::make_kv_append},
    {0, 0, 1, true, &GraphGenerator::make_size},
    {0, 0, 1, true, &GraphGenerator::make_packed_product},
    {0, 0, 1, true, &GraphGenerator::make_int8_product},
    {0, 0, 1, true, &GraphGenerator::make_random},
    {0, 0, 4, true, &GraphGenerator::make_if},
    {0, 0, 4, true, &GraphGenerator::make_while},
    {0, 0, 6, true, &GraphGenerator::make_scan},
    {0, 0, 1, true, &GraphGenerator::make_custom},
};

Value GraphGenerator::make_call() {
  const auto weight = [&](const Recipe& r) {
    return everything() ? r.everything : fusion() ? r.fusion : r.anything;
  };
  int64_t total = 0;
  for (const Recipe& r : kRecipes) total += weight(r);
  int64_t at = dice_.below(total);
  for (const Recipe& r : kRecipes) {
    at -= weight(r);
    if (at >= 0) continue;
    takes_symbols_ = r.symbols;
    return (this->*r.make)();
  }
  return pick();
}

Array random_array(Dice& dice, DType dtype, const Dims& shape) {
  Array a = Array::uninitialized(dtype, shape);
  visit_dtype(dtype, [&]<class T>() {
    for (T& x : a.mutable_data<T>()) {
      if constexpr (std::is_integral_v<T>) {
        x = T(dice.below(4));
      } else if constexpr (std::is_constructible_v<T, double>) {
        x = T(dice.number());
      }
    }
  });
  return a;
}

std::vector<Array> random_inputs(const Graph& graph, uint64_t seed, const SymbolBindings& sizes) {
  Dice dice(seed);
  std::vector<Array> r;
  for (Value v : graph.inputs()) {
    const TensorType& t = graph.type(v);
    r.push_back(random_array(dice, t.dtype, t.shape.substitute(sizes).static_dims()));
  }
  return r;
}

RandomGraph random_graph(const RandomGraphOptions& options) {
  RandomGraph r;
  Builder b(r.graph);
  Dice dice(options.seed, options.choices);
  GraphGenerator generator(b, dice, options);
  generator.generate();
  r.sums_over_symbol = generator.sums_over_symbol();
  r.sizes = {};
  if (options.symbolic) r.sizes[std::string(kRandomSymbol)] = dice.below(kRandomSymbolMost + 1);
  r.inputs = random_inputs(r.graph, options.seed + 1, r.sizes);
  Dice values(options.seed + 2);
  for (Value v : r.graph.params()) {
    const TensorType& t = r.graph.type(v);
    r.params[r.graph.name_of(v)] = random_array(values, t.dtype, t.shape.static_dims());
  }
  return r;
}

}  // namespace rlx
