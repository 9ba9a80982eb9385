// Recipes of control flow: bodies are filled by generators of their own.
#include <algorithm>

#include "rlx/ops/build.h"
#include "rlx/testing/graph_generator.h"

namespace rlx {

GraphGenerator::GraphGenerator(Body& body, GraphGenerator& around)
    : b_(body),
      dice_(around.dice_),
      options_(around.options_),
      dtype_(around.dtype_),
      around_(&around),
      body_(&body),
      depth_(around.depth_ + 1) {}

Value GraphGenerator::capture(Value outer) { return body_->capture(outer); }

void GraphGenerator::fill(std::span<const Value> values, std::span<const Value> counts) {
  around_->takes_symbols_ = true;
  for (int64_t i = dice_.below(3); i >= 0; --i) values_.push_back(capture(around_->pick()));
  counts_.push_back(capture(around_->pick_count()));
  values_.insert(values_.end(), values.begin(), values.end());
  counts_.insert(counts_.end(), counts.begin(), counts.end());
  for (int64_t i = dice_.below(6); i > 0; --i) add_call();
  around_->sums_over_symbol_ |= sums_over_symbol_;
}

Value GraphGenerator::fitting(const Shape& shape) {
  for (size_t i = values_.size(); i-- > 0;) {
    if (b_.shape(values_[i]) == shape && !dice_.once_in(5)) return values_[i];
  }
  if (around_) {
    for (Value v : around_->values_) {
      if (around_->b_.shape(v) == shape) return capture(v);
    }
  }
  return splat(b_, dtype_, shape, 0.5);
}

Value GraphGenerator::next_carry(const Shape& shape) {
  const Value v = fitting(shape);
  return options_.differentiable || !dice_.once_in(3) ? tanh(b_, v) : v;
}

Value GraphGenerator::make_if() {
  if (!may_nest()) return pick();
  std::vector<Value> like;
  for (int64_t i = dice_.below(3); i >= 0; --i) like.push_back(pick());
  const Value predicate = less(b_, pick_count(), count(dice_.below(4)));
  const auto branch = [&](Body& body) {
    GraphGenerator inner(body, *this);
    inner.fill({}, {});
    std::vector<Value> results;
    results.reserve(like.size());
    for (Value v : like) results.push_back(inner.fitting(b_.shape(v)));
    return results;
  };
  return keep(if_else(b_, predicate, branch, branch));
}

// Counts up to a limit that is an input, so nothing is known when the graph is compiled.
Value GraphGenerator::make_while() {
  if (!may_nest()) return pick();
  std::vector<Value> carries{dice_.once_in(3) ? pick_count() : count(0)};
  for (int64_t i = dice_.below(3); i > 0; --i) carries.push_back(pick());
  const Value limit = dice_.once_in(3) ? count(dice_.below(5)) : pick_count();
  std::optional<int64_t> most;
  if (options_.differentiable || dice_.once_in(2)) most = dice_.below(5);
  const std::vector<Value> results = while_loop(
      b_, carries,
      [&](Body& test, std::span<const Value> c) { return less(test, c[0], test.capture(limit)); },
      [&](Body& round, std::span<const Value> c) {
        GraphGenerator inner(round, *this);
        inner.fill(c.subspan(1), c.first(1));
        std::vector<Value> next{add(round, c[0], 1)};
        for (Value v : c.subspan(1)) next.push_back(inner.next_carry(round.shape(v)));
        return next;
      },
      most);
  counts_.push_back(at_most(results[0], 9));
  return results.size() > 1 ? keep({results.begin() + 1, results.end()}) : pick();
}

Value GraphGenerator::make_scan() {
  if (!may_nest()) return pick();
  std::vector<Value> carries, xs;
  Dim length = dice_.below(5);
  if (!dice_.once_in(4)) {
    const Value x = pick_ranked(1);
    const Dim& lead = b_.shape(x)[0];
    if (!lead.is_static() || lead.value() <= 6) {
      length = lead;
      xs.push_back(x);
    }
  }
  for (Value v : values_) {
    if (!xs.empty() && rank(v) > 0 && b_.shape(v)[0] == length && dice_.once_in(3)) xs.push_back(v);
  }
  for (int64_t i = dice_.below(3); i > 0; --i) carries.push_back(pick());
  const ScanOptions loop{dice_.once_in(3), dice_.once_in(3) ? dice_.below(4) : 0};
  const auto step = [&](Body& body, Value index, std::span<const Value> in,
                        std::span<const Value> slices) {
    GraphGenerator inner(body, *this);
    std::vector<Value> given(in.begin(), in.end());
    given.insert(given.end(), slices.begin(), slices.end());
    inner.fill(given, std::span(&index, 1));
    ScanStep out;
    for (Value c : in) out.carries.push_back(inner.next_carry(body.shape(c)));
    inner.takes_symbols_ = true;
    for (int64_t i = dice_.below(3) + int64_t(in.empty()); i > 0; --i) {
      const Value y = inner.pick();
      const bool fits = inner.elements(y) * 6 <= most_elements();
      out.ys.push_back(fits ? y : splat(body, dtype_, {2}, 0.25));
    }
    return out;
  };
  return keep(scan(b_, carries, xs, length, step, loop));
}

Value GraphGenerator::make_custom() {
  if (!may_nest()) return pick();
  Body body(b_, "function");
  GraphGenerator inner(body, *this);
  std::vector<Value> operands, inputs;
  for (int64_t i = dice_.below(2); i >= 0; --i) {
    operands.push_back(pick());
    inputs.push_back(body.add_input(b_.type(operands.back())));
  }
  inner.values_ = inputs;
  inner.counts_.push_back(inner.count(dice_.below(4)));
  for (int64_t i = 1 + dice_.below(4); i > 0; --i) inner.add_call();
  sums_over_symbol_ |= inner.sums_over_symbol_;
  std::vector<Value> results;
  inner.takes_symbols_ = true;
  for (int64_t i = dice_.below(2); i >= 0; --i) results.push_back(inner.pick());
  return keep(custom_fn(b_, body.finish(inputs, inputs.size(), {}, results), {}, {}, operands));
}

}  // namespace rlx
