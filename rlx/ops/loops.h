// Loops and branches whose bodies are built by functions:
//
//   const auto results = scan(b, {h}, {x}, length, [&](Body& step, Value, auto carries, auto xs) {
//     const Value h = tanh(step, matmul(step, carries[0], step.capture(w)));
//     return ScanStep{{add(step, h, xs[0])}, {h}};
//   });
//
// A value of the graph around is no value of the body: it must be captured first.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rlx/ir/builder.h"

namespace rlx {

namespace loops_detail {
// A base, so that the graph is there before the Builder on it.
struct OwnGraph {
  Graph own;
};
}  // namespace loops_detail

// The builder of a body.
class Body : private loops_detail::OwnGraph, public Builder {
 public:
  // Around: the builder of the graph (perhaps a Body too) that the step is called in.
  Body(Builder& around, std::string name);
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;

  // A value of the graph around, as a value of the body; the same for the same value.
  Value capture(Value outer);

  const std::vector<Value>& captured() const { return outer_; }
  Value add_input(const TensorType& type);
  // The body with these inputs in this order, with `captures` (of the graph around) put in before
  // position `at`.
  GraphRef finish(std::span<const Value> inputs, size_t at, std::span<const Value> captures,
                  std::span<const Value> outputs);

 private:
  Builder& around_;
  std::vector<Value> outer_, inner_;
};

struct ScanStep {
  std::vector<Value> carries, ys;
};
using ScanFn = std::function<ScanStep(Body&, Value index, std::span<const Value> carries,
                                      std::span<const Value> xs)>;
struct ScanOptions {
  bool reverse = false;
  int64_t checkpoints = 0;  // as ScanAttrs has them
};

// In all three, random ops inside draw anew in every round: the index of the loop (or of the round)
// is folded into their seeds by RngFold, in nested loops that of each. Only those in a CustomFn are
// left alone. All throw Error(kUser) if a function gives values of other types or numbers.

// Results: final carries, then the stacked ys.
std::vector<Value> scan(Builder& b, std::span<const Value> carries, std::span<const Value> xs,
                        const Dim& length, const ScanFn& step, ScanOptions options = {});
inline std::vector<Value> scan(Builder& b, std::initializer_list<Value> carries,
                               std::initializer_list<Value> xs, const Dim& length,
                               const ScanFn& step, ScanOptions options = {}) {
  return scan(b, std::span(carries.begin(), carries.size()), std::span(xs.begin(), xs.size()),
              length, step, options);
}

// Results: the final carries.
using ConditionFn = std::function<Value(Body&, std::span<const Value> carries)>;
using RoundFn = std::function<std::vector<Value>(Body&, std::span<const Value> carries)>;
std::vector<Value> while_loop(Builder& b, std::span<const Value> carries,
                              const ConditionFn& condition, const RoundFn& round,
                              std::optional<int64_t> max_iterations = {});
inline std::vector<Value> while_loop(Builder& b, std::initializer_list<Value> carries,
                                     const ConditionFn& condition, const RoundFn& round,
                                     std::optional<int64_t> max_iterations = {}) {
  return while_loop(b, std::span(carries.begin(), carries.size()), condition, round,
                    max_iterations);
}

// Results: what the chosen function gives. `predicate` is bool [].
using BranchFn = std::function<std::vector<Value>(Body&)>;
std::vector<Value> if_else(Builder& b, Value predicate, const BranchFn& then_branch,
                           const BranchFn& else_branch);

// A new seed for each index (any integers; the shapes broadcast): of a loop, a layer or a training
// step.
Value rng_fold(Builder& b, Value seed, Value index);

// A function with derivatives of its own, see CustomFn: graphs over positional inputs; `vjp` and
// `jvp` may be null.
std::vector<Value> custom_fn(Builder& b, GraphRef forward, GraphRef vjp, GraphRef jvp,
                             std::span<const Value> operands);

}  // namespace rlx
