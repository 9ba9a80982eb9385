#include "rlx/testing/random_graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "rlx/ir/leaf.h"
#include "rlx/ops/activation.h"
#include "rlx/ops/binary.h"
#include "rlx/ops/build.h"
#include "rlx/ops/conv.h"
#include "rlx/ops/dot_general.h"
#include "rlx/ops/pool.h"
#include "rlx/ops/reduce.h"
#include "rlx/ops/rms_norm.h"

namespace rlx {
namespace {

class Generator {
 public:
  Generator(Graph& graph, const RandomGraphOptions& options)
      : b_(graph), dice_(options.seed), dtype_(options.dtype), style_(options.style) {}

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
  bool fusion() const { return style_ == RandomGraphStyle::kFusion; }
  int64_t most_elements() const { return fusion() ? 6000 : 600; }
  int64_t random_size() {
    if (dice_.once_in(40)) return 0;
    if (fusion() && dice_.once_in(3)) return 8 + dice_.below(70);
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
    if (b_.shape(v).num_elements().value() > most_elements()) {
      v = narrow(b_, v, 0, 0, std::min<int64_t>(dims(v)[0], 2));
    }
    if (b_.shape(v).num_elements().value() <= most_elements()) values_.push_back(v);
  }

  // A way to make a call, and how likely it is in each style.
  struct Recipe {
    int anything, fusion;
    Value (Generator::*make)();
  };
  static const Recipe kRecipes[];

  Value make_call();

  Value make_activation() { return activation(b_, dice_.pick(smooth_kinds()), pick()); }
  static const std::vector<ActivationKind>& smooth_kinds() {
    using enum ActivationKind;
    static const std::vector<ActivationKind> kinds{
        kGelu, kGeluApprox, kSilu,     kRelu, kSigmoid,     kTanh, kNeg,      kAbs,       kSin,
        kCos,  kAtan,       kSoftplus, kErf,  kHardSigmoid, kMish, kSoftsign, kLogSigmoid};
    return kinds;
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
  Value make_transpose() {
    const Value v = pick_ranked(1);
    return transpose(b_, v, random_order(rank(v)));
  }
  Value make_softmax() {
    const Value v = pick_ranked(1);
    return softmax(b_, v, fusion() && !dice_.once_in(3) ? -1 : random_axis(v));
  }
  // Some arithmetic in another type.
  Value make_cast() {
    const Value v = pick();
    const DType other =
        dice_.pick(std::vector{DType::kF32, DType::kF64, DType::kBF16, DType::kF16});
    return cast(b_, tanh(b_, cast(b_, v, other)), dtype_);
  }
  Value make_derivative() {
    const Value x = pick();
    Value dy = partner(x);
    if (b_.shape(dy) != b_.shape(x)) dy = x;
    return activation_backward(b_, dice_.pick(smooth_kinds()), x, dy);
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
    const Value gamma = constant(b_, random_array(dice_, dtype_, row));
    const Value beta = constant(b_, random_array(dice_, dtype_, row));
    if (fusion() && dice_.once_in(2)) return rms_norm(b_, v, gamma, beta, axis, 0.1);
    return layer_norm(b_, v, gamma, beta, axis, 0.1);
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
  RandomGraphStyle style_;
  std::vector<Value> values_;
  int params_ = 0;
};

const Generator::Recipe Generator::kRecipes[] = {
    {4, 12, &Generator::make_activation}, {4, 20, &Generator::make_binary},
    {2, 4, &Generator::make_reduce},      {2, 6, &Generator::make_product},
    {2, 1, &Generator::make_reshape},     {2, 1, &Generator::make_transpose},
    {2, 1, &Generator::make_narrow},      {2, 1, &Generator::make_concat},
    {2, 1, &Generator::make_expand},      {2, 4, &Generator::make_softmax},
    {2, 4, &Generator::make_layer_norm},  {2, 3, &Generator::make_conv},
    {2, 0, &Generator::make_pool},        {1, 0, &Generator::make_gather},
    {1, 3, &Generator::make_where},       {0, 3, &Generator::make_cast},
    {0, 3, &Generator::make_derivative},
};

Value Generator::make_call() {
  int64_t total = 0;
  for (const Recipe& r : kRecipes) total += fusion() ? r.fusion : r.anything;
  int64_t at = dice_.below(total);
  for (const Recipe& r : kRecipes) {
    at -= fusion() ? r.fusion : r.anything;
    if (at < 0) return (this->*r.make)();
  }
  return pick();
}

}  // namespace

Array random_array(Dice& dice, DType dtype, const Dims& shape) {
  Array a = Array::uninitialized(dtype, shape);
  visit_dtype(dtype, [&]<class T>() {
    for (T& x : a.mutable_data<T>()) {
      if constexpr (std::is_constructible_v<T, double>) x = T(dice.number());
    }
  });
  return a;
}

RandomGraph random_graph(const RandomGraphOptions& options) {
  RandomGraph r;
  Generator(r.graph, options).generate(options.calls);
  Dice dice(options.seed + 1);
  const auto draw = [&](Value v) {
    return random_array(dice, options.dtype, r.graph.type(v).shape.static_dims());
  };
  for (Value v : r.graph.inputs()) r.inputs.push_back(draw(v));
  for (Value v : r.graph.params()) r.params[r.graph.name_of(v)] = draw(v);
  return r;
}

}  // namespace rlx
