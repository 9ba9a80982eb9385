#include "rlx/compile/bounds.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "rlx/base/checked.h"
#include "rlx/base/error.h"
#include "rlx/compile/bodies.h"
#include "rlx/compile/view.h"
#include "rlx/ir/bind_size.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/attention.h"
#include "rlx/ops/build.h"
#include "rlx/ops/derive.h"
#include "rlx/ops/dim_size.h"
#include "rlx/ops/dynamic_slice.h"
#include "rlx/ops/extent.h"
#include "rlx/ops/gather.h"
#include "rlx/ops/reduce.h"
#include "rlx/ops/shape_ops.h"

namespace rlx {

RLX_USE_OP(Attention);
RLX_USE_OP(AttentionBackwardAll);
RLX_USE_OP(Concat);
RLX_USE_OP(DimSize);
RLX_USE_OP(DynamicSlice);
RLX_USE_OP(Extent);
RLX_USE_OP(GatherBackward);
RLX_USE_OP(Narrow);
RLX_USE_OP(Reduce);
RLX_USE_OP(Reshape);

namespace {

constexpr int kMaxDepth = 64;

class Masker {
 public:
  explicit Masker(const SymbolBindings& bounds) : bounds_(bounds) {}

  Graph run(const Graph& graph) {
    for (Value v : graph.inputs()) check_grows(graph.type(v).shape, "input " + graph.name_of(v));
    return rewrite(graph, [&](Builder& b, const Node& n, std::span<const Value> operands) {
      return visit(b, n, operands, 0);
    });
  }

 private:
  std::optional<std::vector<Value>> visit(Builder& b, const Node& n,
                                          std::span<const Value> operands, int depth) {
    if (!touches_bounds(b, n, operands)) return std::nullopt;
    for (const TensorType& t : n.results) check_grows(t.shape, n.op->name);
    if (n.op == &kDimSizeOp) {
      return std::vector{size_value(b, b.shape(operands[0])[n.attrs.as<DimSizeAttrs>().axis])};
    }
    if (n.op->has(kControl)) {
      return copy_with_bodies(b, n, operands,
                              [&](const Graph& body) { return Masker(bounds_).run(body); });
    }
    if (has_body_to_mask(n)) return inline_body(b, n, operands, depth);
    if (n.op == &kExtentOp) return std::vector{size_value(b, n.attrs.as<ExtentAttrs>().size)};
    if (n.op == &kNarrowOp) return narrow_call(b, n, operands);
    if (n.op == &kConcatOp) return concat_call(b, n, operands, depth);
    if (n.op == &kReshapeOp) check_reshape(n, b.type(operands[0]));
    if (n.op->has(kRandom)) check_random(n);
    check_checked_sizes(n);
    if (n.op == &kAttentionOp) return attention_call(b, n, operands, kAttentionInputs);
    if (n.op == &kAttentionBackwardAllOp) {
      return attention_call(b, n, operands, kAttentionBackwardInputs);
    }
    if (n.op == &kReduceOp && is_bounded_mean(b, n, operands)) return mean_call(b, n, operands);

    return fill_operands(b, n, operands, depth);
  }

  std::optional<std::vector<Value>> fill_operands(Builder& b, const Node& n,
                                                  std::span<const Value> operands, int depth) {
    std::vector<TensorType> types;
    for (Value v : operands) types.push_back(b.type(v));
    std::vector<Value> filled(operands.begin(), operands.end());
    for (size_t i = 0; i < operands.size(); ++i) {
      for (int64_t axis = 0; axis < types[i].shape.rank(); ++axis) {
        if (!is_bounded(types[i].shape[axis])) continue;
        const TailRule rule = rule_of(n, types, i, axis);
        if (rule == TailRule::kRefused) return expand(b, n, operands, types, depth, i, axis);
        filled[i] = fill(b, filled[i], axis, rule);
      }
    }
    return copy_node(b, n, filled);
  }

  bool is_bounded(const Dim& dim) const { return !bounded_symbols(dim, bounds_).empty(); }
  bool is_bounded(const Shape& shape) const {
    return std::ranges::any_of(shape, [&](const Dim& d) { return is_bounded(d); });
  }

  // Memory is planned with all sizes at their bounds: none may be larger before.
  void check_grows(const Shape& shape, std::string_view what) const {
    for (const Dim& d : shape) {
      for (const std::string& symbol : bounded_symbols(d, bounds_)) {
        if (!grows_in(d, symbol)) {
          fail(ErrorKind::kUnsupported,
               "{}: the size {} of {} shrinks where {} grows, which has a bound instead of a value",
               what, d.to_string(), shape.to_string(), symbol);
        }
      }
    }
  }

  bool grows_in(const Dim& dim, const std::string& symbol) const {
    if (const auto line = linear_in(dim, symbol)) return line->slope > 0;
    SymbolBindings at = bounds_;
    at.erase(symbol);
    const Dim alone = dim.substitute(at);
    const int64_t bound = bounds_.at(symbol), most = alone.evaluate({{symbol, bound}});
    const auto exceeds = [&](int64_t v) { return alone.evaluate({{symbol, v}}) > most; };
    if (bound > 0 && exceeds(bound - 1)) return false;
    const int64_t step = std::max<int64_t>(bound / 4096, 1);
    for (int64_t v = 0; v < bound; v += step) {
      if (exceeds(v)) return false;
    }
    return true;
  }

  bool touches_bounds(Builder& b, const Node& n, std::span<const Value> operands) const {
    if (n.op->has(kControl)) return true;
    std::vector<std::string> symbols;
    collect_symbols(n, symbols);
    return has_bounded(symbols) ||
           std::ranges::any_of(operands, [&](Value v) { return is_bounded(b.shape(v)); });
  }

  bool has_bounded(std::span<const std::string> symbols) const {
    return std::ranges::any_of(symbols, [&](const std::string& s) { return bounds_.contains(s); });
  }

  // A function of the user, whose calls have bounded sizes.
  bool has_body_to_mask(const Node& n) const {
    std::vector<std::string> symbols;
    collect_body_symbols(n.attrs, symbols);
    return n.op->decompose && has_bounded(symbols);
  }

  static TailRule rule_of(const Node& n, std::span<const TensorType> types, size_t operand,
                          int64_t axis) {
    if (n.op->tail) return n.op->tail({*n.op, n.attrs, types}, operand, axis);
    const bool by_element = n.op->has(kElementwise) || n.op->has(kView) || n.op->has(kIdentity);
    return by_element ? TailRule::kIgnored : TailRule::kRefused;
  }

  // The size as a number. A run knows lines in one symbol; sums of them are computed.
  Value size_value(Builder& b, const Dim& size) const {
    const auto sum = linear_sum(size, bounds_);
    if (!sum || sum->slopes.size() < 2) return extent(b, size);
    Value value = scalar(b, DType::kI64, double(sum->base));
    for (const auto& [symbol, slope] : sum->slopes) {
      value = add(b, value, extent(b, slope * Dim::symbol(symbol)));
    }
    return value;
  }

  Value fill(Builder& b, Value x, int64_t axis, TailRule rule) {
    if (rule == TailRule::kIgnored) return x;
    const FillValue value = rule == TailRule::kZero     ? FillValue::kZero
                            : rule == TailRule::kOne    ? FillValue::kOne
                            : rule == TailRule::kLowest ? FillValue::kLowest
                                                        : FillValue::kHighest;
    return fill_tail(b, x, size_value(b, b.shape(x)[axis]), axis, value);
  }

  // An op without a rule may consist of ops that have one.
  std::optional<std::vector<Value>> expand(Builder& b, const Node& n,
                                           std::span<const Value> operands,
                                           std::span<const TensorType> types, int depth,
                                           size_t operand, int64_t axis) {
    if (!n.op->decompose || depth >= kMaxDepth) {
      fail(ErrorKind::kUnsupported,
           "{}{}{}: axis {} of operand {}, {}, has a bounded size, and the op cannot have one "
           "there: "
           "compile without a bound for {}, or pad and mask",
           n.op->name, n.label.empty() ? "" : " at ", n.label, axis, operand,
           types[operand].to_string(), types[operand].shape[axis].to_string());
    }
    return inline_body(b, n, operands, depth);
  }

  std::vector<Value> inline_body(Builder& b, const Node& n, std::span<const Value> operands,
                                 int depth) {
    std::vector<TensorType> types;
    for (Value v : operands) types.push_back(b.type(v));
    const Graph body = expand_to_graph(*n.op, n.attrs, types);
    return inline_graph(b, body, operands,
                        [&](Builder& inner, const Node& m, std::span<const Value> values) {
                          return visit(inner, m, values, depth + 1);
                        });
  }

  // The live elements must be where they would be if all sizes were the bounds.
  void check_reshape(const Node& n, const TensorType& from) const {
    const Shape &x = from.shape, &y = n.results[0].shape;
    SymbolBindings at = bounds_;
    const Dims strides = dense_strides(dims_at(x, at)), wanted = dense_strides(dims_at(y, at));
    for (const auto& [symbol, bound] : bounds_) {
      if (bound < 2) continue;
      at[symbol] = bound - 1;
      const Dims live = dims_at(y, at);
      const auto moved = reshape_strides(dims_at(x, at), strides, live);
      bool same = moved.has_value();
      for (size_t a = 0; same && a < live.size(); ++a) {
        same = live[a] <= 1 || (*moved)[a] == wanted[a];
      }
      if (!same) {
        fail(
            ErrorKind::kUnsupported,
            "Reshape{}{} of {} to {}: the bounded size {} must stay the leading factor of its axes",
            n.label.empty() ? "" : " at ", n.label, x.to_string(), y.to_string(), symbol);
      }
      at[symbol] = bound;
    }
  }

  static Dims dims_at(const Shape& shape, const SymbolBindings& at) {
    return shape.substitute(at).static_dims();
  }

  // Draws belong to the position in the row-major order.
  void check_random(const Node& n) const {
    const Shape& shape = n.results[0].shape;
    bool leading = true;
    for (const Dim& d : shape) {
      if (is_bounded(d) && !leading) {
        fail(ErrorKind::kUnsupported,
             "{} of shape {}: a bounded size must be the first, draws depend on their position",
             n.op->name, shape.to_string());
      }
      leading &= d.is(1);
    }
  }

  // Sizes that the kernel checks places against: at the bound it would check the wrong ones.
  void check_checked_sizes(const Node& n) const {
    bool bounded = false;
    if (n.op == &kDynamicSliceOp) bounded = is_bounded(n.attrs.as<DynamicSliceAttrs>().sizes);
    if (n.op == &kGatherBackwardOp) {
      const auto& a = n.attrs.as<GatherBackwardAttrs>();
      bounded = is_bounded(a.shape[a.axis]);
    }
    if (bounded) {
      fail(ErrorKind::kUnsupported,
           "{}{}{}: the size of the {} that places are checked against is bounded, in {}",
           n.op->name, n.label.empty() ? "" : " at ", n.label,
           n.op == &kDynamicSliceOp ? "window" : "axis", n.results[0].to_string());
    }
  }

  std::optional<std::vector<Value>> narrow_call(Builder& b, const Node& n,
                                                std::span<const Value> operands) const {
    const auto& a = n.attrs.as<NarrowAttrs>();
    const Dim& size = b.shape(operands[0])[a.axis];
    if (!is_bounded(a.start) && !is_bounded(a.length) && !is_bounded(size)) return std::nullopt;
    const Dim rest = size - a.start - a.length;
    if ((is_bounded(a.length) && is_bounded(a.start)) || !never_negative(rest)) {
      fail(ErrorKind::kUnsupported,
           "Narrow{}{}: the window [{}, {}) of an axis of size {} cannot be checked while its size "
           "is "
           "bounded: use DynamicSlice",
           n.label.empty() ? "" : " at ", n.label, a.start.to_string(),
           (a.start + a.length).to_string(), size.to_string());
    }
    if (!is_bounded(a.start)) return std::nullopt;
    DynamicSliceAttrs window;
    window.axes = {a.axis};
    window.sizes = {a.length};
    return std::vector<Value>{
        dynamic_slice(b, operands[0], size_value(b, a.start), std::move(window))};
  }

  // For all values of the symbols from 0 on.
  bool never_negative(const Dim& dim) const {
    if (dim.is_static()) return dim.value() >= 0;
    for (const std::string& symbol : bounded_symbols(dim, bounds_)) {
      const auto line = linear_in(dim, symbol);
      return line && line->base >= 0 && (line->slope >= 0 || line->at(bounds_.at(symbol)) >= 0);
    }
    return false;
  }

  // Parts behind one of bounded size are put where its extent ends, each over what lies beyond the
  // one before.
  std::optional<std::vector<Value>> concat_call(Builder& b, const Node& n,
                                                std::span<const Value> operands, int depth) {
    const int64_t axis = n.attrs.as<ConcatAttrs>().axis;
    const auto moves = [&](Value v) { return is_bounded(b.shape(v)[axis]); };
    const auto first = std::ranges::find_if(operands, moves);
    if (first == operands.end() || is_packed(b.dtype(operands[0])))
      return fill_operands(b, n, operands, depth);
    const auto fixed = size_t(first - operands.begin()) + 1;  // parts that have a place
    std::vector<Value> parts(operands.begin(), operands.end());
    for (Value& v : std::span(parts).subspan(fixed)) v = zeros_like(b, v);
    Value joined = concat(b, parts, axis);
    Value place = scalar(b, DType::kI64, 0);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (i >= fixed) {
        joined = dynamic_update_slice(b, joined, operands[i], place, {.axes = {axis}});
      }
      place = add(b, place, size_value(b, b.shape(operands[i])[axis]));
    }
    return std::vector{joined};
  }

  // Sequences of bounded size get their extent as length.
  std::optional<std::vector<Value>> attention_call(Builder& b, const Node& n,
                                                   std::span<const Value> operands, int inputs) {
    AttentionAttrs a = n.attrs.as<AttentionAttrs>();
    const AttentionOperands at(a, inputs);
    const Dim& queries = b.shape(operands[0])[sequence_axis(a.layout)];
    const Dim& keys = b.shape(operands[1])[sequence_axis(a.layout)];
    std::vector<Value> all(operands.begin(), operands.begin() + inputs);
    const auto keep = [&](int position) {
      if (position >= 0) all.push_back(operands[size_t(position)]);
    };
    const auto length = [&](int position, bool& has, const Dim& size) {
      keep(position);
      if (has || !is_bounded(size)) return;
      has = true;
      all.push_back(size_value(b, size));
    };
    keep(at.mask);
    keep(at.bias);
    length(at.kv_len, a.has_kv_len, keys);
    length(at.q_len, a.has_q_len, queries);
    Node call = n;
    call.attrs = Attrs::of(n.attrs.table(), a);
    return fill_operands(b, call, all, 0);
  }

  bool is_bounded_mean(Builder& b, const Node& n, std::span<const Value> operands) const {
    const auto& a = n.attrs.as<ReduceAttrs>();
    const Shape& x = b.shape(operands[0]);
    return a.kind == ReduceKind::kMean &&
           std::ranges::any_of(a.axes, [&](int64_t axis) { return is_bounded(x[axis]); });
  }

  std::vector<Value> mean_call(Builder& b, const Node& n, std::span<const Value> operands) {
    const auto& a = n.attrs.as<ReduceAttrs>();
    const DType dtype = b.dtype(operands[0]),
                wide = is_complex(dtype) ? dtype : accumulation_dtype(dtype);
    Value x = cast(b, operands[0], wide);
    Value count = scalar(b, DType::kI64, 1);
    for (int64_t axis : a.axes) {
      count = mul(b, count, size_value(b, b.shape(x)[axis]));
      if (is_bounded(b.shape(x)[axis])) x = fill(b, x, axis, TailRule::kZero);
    }
    return {cast(b, div(b, sum(b, x, a.axes, a.keep_dims), cast(b, count, wide)), dtype)};
  }

  const SymbolBindings& bounds_;
};

void check_bodies(const Node& n, const std::string& at) {
  if (const Graph* body = body_that_binds(n)) {
    fail(ErrorKind::kUnsupported,
         "{}{}: BindSize in the body '{}': only the graph itself can set a size", n.op->name, at,
         body->name());
  }
}

}  // namespace

std::optional<int64_t> LinearDim::solve(int64_t size) const {
  const int64_t rest = checked_sub(size, base);
  if (rest % slope != 0 || rest / slope < 0) return std::nullopt;
  return rest / slope;
}

int64_t LinearDim::at(int64_t value) const { return checked_add(base, checked_mul(slope, value)); }

std::optional<LinearDim> linear_in(const Dim& dim, const std::string& symbol) {
  std::vector<std::string> symbols;
  dim.collect_symbols(symbols);
  if (!std::ranges::all_of(symbols, [&](const std::string& s) { return s == symbol; })) {
    return std::nullopt;
  }
  LinearDim line;
  line.base = dim.evaluate({{symbol, 0}});
  line.slope = checked_sub(dim.evaluate({{symbol, 1}}), line.base);
  if (line.slope == 0 || dim != line.base + line.slope * Dim::symbol(symbol)) return std::nullopt;
  return line;
}

std::optional<LinearSum> linear_sum(const Dim& dim, const SymbolBindings& bounds) {
  LinearSum sum;
  SymbolBindings at;
  const std::vector<std::string> symbols = bounded_symbols(dim, bounds);
  for (const std::string& s : symbols) at[s] = 0;
  const Dim base = dim.substitute(at);
  if (!base.is_static()) return std::nullopt;
  sum.base = base.value();
  Dim same = base;
  for (const std::string& s : symbols) {
    at[s] = 1;
    sum.slopes.emplace_back(s, checked_sub(dim.evaluate(at), sum.base));
    at[s] = 0;
    same = same + sum.slopes.back().second * Dim::symbol(s);
  }
  return same == dim ? std::optional(std::move(sum)) : std::nullopt;
}

std::vector<std::string> bounded_symbols(const Dim& dim, const SymbolBindings& bounds) {
  std::vector<std::string> symbols;
  dim.collect_symbols(symbols);
  std::erase_if(symbols, [&](const std::string& s) { return !bounds.contains(s); });
  std::ranges::sort(symbols);
  symbols.erase(std::unique(symbols.begin(), symbols.end()), symbols.end());
  return symbols;
}

std::vector<std::string> bounded_symbols(const Shape& shape, const SymbolBindings& bounds) {
  std::vector<std::string> all;
  for (const Dim& d : shape) {
    for (std::string& s : bounded_symbols(d, bounds)) all.push_back(std::move(s));
  }
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

void check_set_sizes(const Graph& graph, const SymbolBindings& given) {
  if (!binds_sizes(graph)) return;
  std::vector<std::string> elsewhere = free_symbols(graph), mentioned;
  for (const auto& [symbol, bound] : given) elsewhere.push_back(symbol);
  const auto in = [](const std::vector<std::string>& list, const std::string& symbol) {
    return std::ranges::find(list, symbol) != list.end();
  };
  for (const Node& n : graph.nodes()) {
    const std::string at = n.label.empty() ? "" : " at " + n.label;
    check_bodies(n, at);
    if (binds_size(n)) {
      const std::string& symbol = n.attrs.as<BindSizeAttrs>().symbol;
      if (in(elsewhere, symbol)) {
        user_error(
            "BindSize{}: the size '{}' of '{}' is set by another call, an input, a param or "
            "CompileOptions::bounds as well",
            at, symbol, graph.name());
      }
      if (in(mentioned, symbol)) {
        user_error("BindSize{}: calls before it in '{}' have the size '{}' that it sets", at,
                   graph.name(), symbol);
      }
      elsewhere.push_back(symbol);
    }
    collect_symbols(n, mentioned);
  }
}

SymbolBindings all_bounds(const Graph& graph, const SymbolBindings& given) {
  check_set_sizes(graph, given);
  SymbolBindings all = given;
  for (const Node& n : graph.nodes()) {
    if (!binds_size(n)) continue;
    const auto& a = n.attrs.as<BindSizeAttrs>();
    if (!a.bound.is_static()) {
      fail(ErrorKind::kUnsupported,
           "BindSize{}{}: the bound {} of the size '{}' depends on a size without a value: it must "
           "be a number when the graph is compiled",
           n.label.empty() ? "" : " at ", n.label, a.bound.to_string(), a.symbol);
    }
    all[a.symbol] = a.bound.value();
  }
  return all;
}

Graph mask_bounded(const Graph& graph, const SymbolBindings& bounds) {
  return Masker(bounds).run(graph);
}

}  // namespace rlx
