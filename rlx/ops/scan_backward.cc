#include "rlx/ir/packed.h"
#include "rlx/ir/rewrite.h"
#include "rlx/ops/build.h"
#include "rlx/ops/control_rules.h"
#include "rlx/ops/derive.h"
#include "rlx/ops/infer_util.h"
#include "rlx/ops/rules.h"

namespace rlx {

RLX_USE_OP(ScanBackward);
RLX_USE_OP(ScanBackwardXs);

namespace {

// Operands are those of the Scan, then cotangents of its differentiable results.
struct Operands {
  size_t carries = 0, first_x = 0, forward = 0;  // counts of the Scan's operands
};

Operands counts_of(const ScanAttrs& a) {
  if (!a.body) user_error("the body is missing");
  if (a.body->inputs().empty()) user_error("the body takes no index");
  const size_t forward = a.body->inputs().size() - 1;
  if (a.num_carries < 0 || a.num_captures < 0 || uint64_t(a.num_carries) > forward ||
      uint64_t(a.num_captures) > forward - uint64_t(a.num_carries)) {
    user_error("num_carries {} and num_captures {} do not fit a body of {} inputs", a.num_carries,
               a.num_captures, forward + 1);
  }
  return {size_t(a.num_carries), size_t(a.num_carries + a.num_captures), forward};
}

std::vector<TensorType> gradient_types(const InferContext& c, size_t first) {
  const auto& a = c.as<ScanAttrs>();
  const Operands n = counts_of(a);
  if (c.operands.size() < n.forward) {
    user_error("the Scan has {} operands, {} were given", n.forward, c.operands.size());
  }
  const auto forward = c.operands.first(n.forward), cotangents = c.operands.subspan(n.forward);
  const std::vector<TensorType> results = infer_scan_results(a, forward);
  const std::vector<size_t> of = differentiable_positions(results);
  if (of.size() != cotangents.size()) {
    user_error("the Scan has {} differentiable results, {} cotangents were given", of.size(),
               cotangents.size());
  }
  for (size_t i = 0; i < of.size(); ++i) {
    if (cotangents[i] == results[of[i]]) continue;
    user_error("cotangent {} is {}, the result is {}", i, cotangents[i].to_string(),
               results[of[i]].to_string());
  }
  std::vector<TensorType> types;
  for (size_t i : differentiable_positions(forward)) {
    if (i >= first) types.push_back(forward[i]);
  }
  if (types.empty()) user_error("none of the operands asked for is differentiable");
  return types;
}

std::vector<TensorType> infer_scan_backward(const InferContext& c) { return gradient_types(c, 0); }

std::vector<TensorType> infer_scan_backward_xs(const InferContext& c) {
  return gradient_types(c, counts_of(c.as<ScanAttrs>()).first_x);
}

// A run of steps: slices of the xs, cotangents of the ys, and the indices of the steps, where they
// are not 0, 1, ....
struct Steps {
  Dim length;
  std::vector<Value> xs, d_ys;
  Value index;  // i64 [length], or invalid
};

// Cotangents of the carries, sums of those of the captures, and those of the xs. Only of the
// differentiable ones.
struct Gradients {
  std::vector<Value> carries, captures, xs;
};

class ScanSweep {
 public:
  ScanSweep(const ScanAttrs& a, std::span<const TensorType> operands) : a_(a), n_(counts_of(a)) {
    const std::vector<TensorType> results = infer_scan_results(a, operands.first(n_.forward));
    for (size_t i : differentiable_positions(operands.first(n_.forward))) {
      (i < n_.carries ? diff_carries_ : i < n_.first_x ? diff_captures_ : diff_xs_).push_back(i);
      wrt_.push_back(1 + i);
    }
    of_ = differentiable_positions(results);
    pullback_ = pullback(*a.body, wrt_, of_);
  }

  std::vector<Value> run(Builder& b, std::span<const Value> operands) const {
    const auto carries = operands.first(n_.carries);
    const auto captures = operands.subspan(n_.carries, n_.first_x - n_.carries);
    const auto xs = operands.subspan(n_.first_x, n_.forward - n_.first_x);
    const auto cotangents = operands.subspan(n_.forward);
    Gradients g;
    g.carries = joined(cotangents.first(diff_carries_.size()));
    for (size_t i : diff_captures_) g.captures.push_back(zeros_like(b, operands[i]));
    const Steps all{a_.length, joined(xs), joined(cotangents.subspan(diff_carries_.size())), {}};
    const Dim segments = segment_count();
    g = segments.is(0) ? whole(b, carries, captures, all, g)
                       : by_segments(b, carries, captures, all, segments, std::move(g));
    return joined(g.carries, g.captures, g.xs);
  }

 private:
  // 0: every step keeps its carries.
  Dim segment_count() const {
    const bool every =
        a_.checkpoints == 0 || (a_.length.is_static() && a_.length.value() <= a_.checkpoints);
    return every ? 0 : a_.checkpoints;
  }

  ScanAttrs attrs(size_t carries, size_t captures, const Dim& length, bool reverse) const {
    ScanAttrs s;
    s.num_carries = int64_t(carries);
    s.num_captures = int64_t(captures);
    s.length = length;
    s.reverse = reverse;
    return s;
  }

  static std::vector<TensorType> slices(const Builder& b, std::span<const Value> stacks) {
    std::vector<TensorType> types;
    for (Value v : stacks) types.push_back(slice_of(b.type(v)));
    return types;
  }

  // The Scan's own body, which gives the carries that it was given instead of the ys. Without an
  // own index it has the same nodes, and merge_common runs both as one.
  GraphRef saving_body(bool own_index) const {
    const Graph& body = *a_.body;
    if (own_index) {
      BodyWriter w(body.name());
      w.add_input({DType::kI64, {}});
      std::vector<TensorType> types;
      for (Value v : body.inputs()) types.push_back(body.type(v));
      const std::vector<Value> carries_and_captures =
          w.add_inputs(std::span(types).subspan(1, n_.first_x));
      const Value index = w.add_input(types[0]);
      const std::vector<Value> xs = w.add_inputs(std::span(types).subspan(1 + n_.first_x));
      const std::vector<Value> out =
          inline_graph(w.builder(), body, joined(std::vector{index}, carries_and_captures, xs));
      w.add_outputs(std::span(out).first(n_.carries));
      w.add_outputs(std::span(carries_and_captures).first(n_.carries));
      return w.take();
    }
    Graph saving(body.name());
    Builder b(saving);
    for (const Node& n : body.nodes()) copy_node(b, n, n.operands);
    for (size_t i = 0; i < 2 * n_.carries; ++i) {
      const Value v = i < n_.carries ? body.outputs()[i].value : body.inputs()[1 + i - n_.carries];
      saving.add_output(fmt::format("out{}", i), v);
    }
    return std::make_shared<const Graph>(std::move(saving));
  }

  // The final carries, then for each carry what every step was given, stacked.
  std::vector<Value> forward(Builder& b, std::span<const Value> carries,
                             std::span<const Value> captures, const Steps& steps) const {
    if (n_.carries == 0) return {};
    ScanAttrs s = attrs(n_.carries, captures.size(), steps.length, a_.reverse);
    s.body = saving_body(steps.index.valid());
    return scan_call(b, std::move(s), joined(carries, captures, with_index(steps, steps.xs)));
  }

  static std::vector<Value> with_index(const Steps& steps, const std::vector<Value>& values) {
    return steps.index.valid() ? joined(std::vector{steps.index}, values) : values;
  }

  // The reverse sweep over steps whose carries were kept.
  Gradients backward(Builder& b, std::span<const Value> captures, std::span<const Value> kept,
                     const Steps& steps, const Gradients& g) const {
    const std::vector<Value> state = joined(g.carries, g.captures);
    const std::vector<Value> stacks = with_index(steps, joined(kept, steps.xs, steps.d_ys));
    BodyWriter w("reverse");
    Value index = w.add_input({DType::kI64, {}});
    const std::vector<Value> in_state = w.add_inputs(types_of(b, state));
    const std::vector<Value> in_captures = w.add_inputs(types_of(b, captures));
    std::vector<Value> in = w.add_inputs(slices(b, stacks));
    if (steps.index.valid()) {
      index = in[0];
      in.erase(in.begin());
    }
    const auto part = std::span(in);
    const size_t carries = diff_carries_.size(), sums = diff_captures_.size();
    const std::vector<Value> out = inline_graph(
        w.builder(), *pullback_,
        joined(std::vector{index}, part.first(kept.size()), in_captures,
               part.subspan(kept.size(), steps.xs.size()), std::span(in_state).first(carries),
               part.subspan(kept.size() + steps.xs.size())));
    w.add_outputs(std::span(out).first(carries));
    for (size_t i = 0; i < sums; ++i) {
      w.add_output(add(w.builder(), in_state[carries + i], out[carries + i]));
    }
    w.add_outputs(std::span(out).subspan(carries + sums));
    ScanAttrs s = attrs(state.size(), captures.size(), steps.length, !a_.reverse);
    s.body = w.take();
    const std::vector<Value> results = scan_call(b, std::move(s), joined(state, captures, stacks));
    const auto all = std::span(results);
    return {joined(all.first(carries)), joined(all.subspan(carries, sums)),
            joined(all.subspan(carries + sums))};
  }

  Gradients whole(Builder& b, std::span<const Value> carries, std::span<const Value> captures,
                  const Steps& steps, const Gradients& g) const {
    const std::vector<Value> saved = forward(b, carries, captures, steps);
    return backward(b, captures, std::span(saved).subspan(n_.carries), steps, g);
  }

  // Steps first, ..., first + length - 1 of all.
  static Steps part_of(Builder& b, const Steps& all, const Dim& first, const Dim& length) {
    Steps part{length, {}, {}, narrow(b, all.index, 0, first, length)};
    for (Value x : all.xs) part.xs.push_back(narrow(b, x, 0, first, length));
    for (Value d : all.d_ys) part.d_ys.push_back(narrow(b, d, 0, first, length));
    return part;
  }

  static Value split(Builder& b, Value stack, const Dim& segments, const Dim& length) {
    Shape shape = b.shape(stack);
    shape[0] = length;
    shape.insert(0, segments);
    return reshape(b, stack, std::move(shape));
  }

  static Value join(Builder& b, Value segments) {
    Shape shape = b.shape(segments);
    shape[1] = shape[0] * shape[1];
    shape.erase(0);
    return reshape(b, segments, std::move(shape));
  }

  // Segments of equal length, run in order; the steps that are left come last.
  Gradients by_segments(Builder& b, std::span<const Value> carries, std::span<const Value> captures,
                        Steps all, const Dim& segments, Gradients g) const {
    all.index = iota(b, DType::kI64, {a_.length}, 0);
    const Dim length = floor_div(a_.length, segments.value());
    const Dim covered = segments * length, left = a_.length - covered;
    Steps blocks = part_of(b, all, a_.reverse ? left : Dim(0), covered);
    const Steps rest = part_of(b, all, a_.reverse ? Dim(0) : covered, left);
    blocks.index = split(b, blocks.index, segments, length);
    for (Value& x : blocks.xs) x = split(b, x, segments, length);
    for (Value& d : blocks.d_ys) d = split(b, d, segments, length);

    const std::vector<Value> ends = segment_starts(b, carries, captures, blocks, segments);
    const auto after = std::span(ends).first(n_.carries);
    const auto starts = std::span(ends).subspan(n_.carries);
    Gradients tail;
    if (!left.is(0)) {
      tail = whole(b, after, captures, rest, g);
      g = {tail.carries, tail.captures, {}};
    }
    g = sweep_segments(b, captures, starts, blocks, segments, g);
    for (size_t i = 0; i < g.xs.size(); ++i) {
      g.xs[i] = join(b, g.xs[i]);
      if (left.is(0)) continue;
      const Value parts[] = {a_.reverse ? tail.xs[i] : g.xs[i], a_.reverse ? g.xs[i] : tail.xs[i]};
      g.xs[i] = concat(b, parts, 0);
    }
    return g;
  }

  // The carries behind the last segment, then those at the start of each, stacked.
  std::vector<Value> segment_starts(Builder& b, std::span<const Value> carries,
                                    std::span<const Value> captures, const Steps& blocks,
                                    const Dim& segments) const {
    if (n_.carries == 0) return {};
    const std::vector<Value> stacks = with_index(blocks, blocks.xs);
    BodyWriter w("segment");
    w.add_input({DType::kI64, {}});
    const std::vector<Value> in = w.add_inputs(types_of(b, carries));
    const std::vector<Value> in_captures = w.add_inputs(types_of(b, captures));
    const std::vector<Value> in_stacks = w.add_inputs(slices(b, stacks));
    Steps steps = segment(w.builder(), in_stacks, blocks.xs.size());
    const std::vector<Value> saved = forward(w.builder(), in, in_captures, steps);
    w.add_outputs(std::span(saved).first(n_.carries));
    w.add_outputs(in);
    ScanAttrs s = attrs(n_.carries, captures.size(), segments, a_.reverse);
    s.body = w.take();
    return scan_call(b, std::move(s), joined(carries, captures, stacks));
  }

  // Inside the body of a loop over segments: index, xs and, behind them, cotangents of ys.
  static Steps segment(const Builder& b, std::span<const Value> in, size_t xs) {
    return {b.shape(in[0])[0], joined(in.subspan(1, xs)), joined(in.subspan(1 + xs)), in[0]};
  }

  Gradients sweep_segments(Builder& b, std::span<const Value> captures,
                           std::span<const Value> starts, const Steps& blocks, const Dim& segments,
                           const Gradients& g) const {
    const std::vector<Value> state = joined(g.carries, g.captures);
    const std::vector<Value> stacks =
        joined(starts, std::vector{blocks.index}, blocks.xs, blocks.d_ys);
    BodyWriter w("segment_reverse");
    w.add_input({DType::kI64, {}});
    const std::vector<Value> in_state = w.add_inputs(types_of(b, state));
    const std::vector<Value> in_captures = w.add_inputs(types_of(b, captures));
    const std::vector<Value> in = w.add_inputs(slices(b, stacks));
    const Steps steps =
        segment(w.builder(), std::span(in).subspan(starts.size()), blocks.xs.size());
    const size_t carries = diff_carries_.size(), sums = diff_captures_.size();
    const auto given = std::span(in_state);
    const Gradients out = whole(w.builder(), std::span(in).first(starts.size()), in_captures, steps,
                                {joined(given.first(carries)), joined(given.subspan(carries)), {}});
    w.add_outputs(out.carries);
    w.add_outputs(out.captures);
    w.add_outputs(out.xs);
    ScanAttrs s = attrs(state.size(), captures.size(), segments, !a_.reverse);
    s.body = w.take();
    const std::vector<Value> results = scan_call(b, std::move(s), joined(state, captures, stacks));
    const auto all = std::span(results);
    return {joined(all.first(carries)), joined(all.subspan(carries, sums)),
            joined(all.subspan(carries + sums))};
  }

  const ScanAttrs& a_;
  Operands n_;
  std::vector<size_t> diff_carries_, diff_captures_, diff_xs_;  // among the Scan's operands
  std::vector<size_t> wrt_, of_;                                // inputs and outputs of the body
  GraphRef pullback_;
};

std::vector<Value> expand_scan_backward(Builder& b, const Attrs& attrs,
                                        std::span<const Value> operands) {
  return ScanSweep(attrs.as<ScanAttrs>(), types_of(b, operands)).run(b, operands);
}

std::vector<Value> expand_scan_backward_xs(Builder& b, const Attrs& attrs,
                                           std::span<const Value> operands) {
  const auto& a = attrs.as<ScanAttrs>();
  const std::vector<Value> all =
      b.call(kScanBackwardOp, Attrs::of(kScanBackwardOp.fields, a), operands);
  size_t skip = 0;
  for (size_t i = 0; i < counts_of(a).first_x; ++i) skip += is_differentiable(b.dtype(operands[i]));
  return {all.begin() + int64_t(skip), all.end()};
}

}  // namespace

RLX_DEFINE_OP(ScanBackward) = {
    .name = "ScanBackward",
    .fields = RLX_FIELDS(ScanAttrs, body, num_carries, num_captures, length, reverse, checkpoints),
    .flags = kPackedRows,  // handed on to the Scans
    .doc =
        R"(The reverse sweep over a Scan. Attributes: those of the Scan.
Operands: those of the Scan, then the cotangents of its differentiable (float and complex) results.
Results: the cotangents of its differentiable operands, in their order.
It is the Scan once more, keeping the carries that each step is given, and a Scan in the other
direction over the steps' derivatives; cotangents of captures are summed in the order of that sweep.
With checkpoints = K below the length there are K segments of floor(length / K) steps and one of what
is left: the first loop keeps the carries at their starts only, the second runs each segment again.
Errors: those of the Scan; cotangents of another number or type; no differentiable operand; a body
with an op that has no derivative.
Derivative and batching: those of the Scans.)",
    .infer = infer_scan_backward,
    .decompose = {.expand = expand_scan_backward},
};

RLX_DEFINE_OP(ScanBackwardXs) = {
    .name = "ScanBackwardXs",
    .fields = RLX_FIELDS(ScanAttrs, body, num_carries, num_captures, length, reverse, checkpoints),
    .flags = kPackedRows,  // handed on to the Scans
    .doc =
        R"(Those results of ScanBackward that are cotangents of xs. Operands and attributes: those of
ScanBackward; both calls share one sweep.
Errors: those of ScanBackward; no differentiable x.)",
    .infer = infer_scan_backward_xs,
    .decompose = {.expand = expand_scan_backward_xs},
};

}  // namespace rlx
