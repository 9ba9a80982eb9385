// What random_graph() is made of: a generator fills one graph, the main one or a body of control
// flow. Recipes stand in random_graph.cc (elementwise, shapes, products, images),
// random_graph_rows.cc (rows, windows, quantization) and random_graph_control.cc.
#pragma once

#include <string>
#include <vector>

#include "rlx/ops/loops.h"
#include "rlx/testing/random_graph.h"

namespace rlx {

enum class ActivationKind : uint8_t;

class GraphGenerator {
 public:
  // All generators of one graph throw the same dice.
  GraphGenerator(Builder& b, Dice& dice, const RandomGraphOptions& options);
  void generate();
  // Whether a sum, or a product, runs along the symbolic axis.
  bool sums_over_symbol() const { return sums_over_symbol_; }

 private:
  // Of a body in the graph that `around` fills.
  GraphGenerator(Body& body, GraphGenerator& around);

  // --- Values
  Dims dims(Value v) const { return b_.shape(v).static_dims(); }
  int64_t rank(Value v) const { return b_.shape(v).rank(); }
  // With the symbol at its largest value.
  int64_t elements(Value v) const;
  bool has_empty_axis(Value v) const;
  Shape random_shape(int64_t most_axes);
  int64_t random_size();
  int64_t random_axis(Value v) { return dice_.below(rank(v)); }
  std::vector<int64_t> random_order(int64_t n);
  bool fusion() const { return options_.style == RandomGraphStyle::kFusion; }
  bool everything() const { return options_.style == RandomGraphStyle::kEverything; }
  int64_t most_elements() const { return fusion() ? 6000 : 600; }
  // Prefers the latest values, so that graphs are deep.
  Value pick();
  Value pick_ranked(int64_t least);
  // Something that broadcasts with v: itself, a part of it, a number, or another value.
  Value partner(Value v);
  Value random_constant(const Dims& shape);
  // A scalar i64 that is not negative and small: an input, an index, a counter.
  Value pick_count() { return dice_.pick(counts_); }
  Value count(int64_t value);
  Value at_most(Value count, int64_t most);
  // Keeps all of them for later calls, gives the first.
  Value keep(const std::vector<Value>& results);
  bool fits(Value v) const { return elements(v) <= most_elements(); }

  // --- Calls
  void add_call();
  Value make_call();
  void add_outputs();

  Value make_activation();
  Value make_transpose();
  Value make_softmax();
  Value make_cast();  // some arithmetic in another type
  Value make_derivative();
  Value make_binary();
  Value make_reduce();
  Value make_product();
  Value make_reshape();
  Value make_narrow();
  Value make_concat();
  Value make_expand();
  Value make_layer_norm();
  Value image();  // as [N, C, spatial...] with 1 to 3 spatial axes
  Value make_conv();
  Value make_pool();
  Value make_gather();
  Value make_where();

  Value make_rms_norm();
  Value make_norm_backward();
  Value make_sort();
  Value make_top_k();
  Value make_rope();
  Value make_attention();
  Value make_window();
  Value make_kv_append();
  Value make_size();
  Value make_packed_product();
  Value make_int8_product();
  Value make_random();

  Value make_if();
  Value make_while();
  Value make_scan();
  Value make_custom();

  // --- Bodies
  bool may_nest() const { return depth_ < 2; }
  // Calls on captured values and these.
  void fill(std::span<const Value> values, std::span<const Value> counts);
  Value capture(Value outer);
  // A value of this shape, whatever it takes: one that is there already, captured or new.
  Value fitting(const Shape& shape);
  // As the next value of a carry: bounded where loops could make it grow beyond all numbers.
  Value next_carry(const Shape& shape);

  struct Recipe;
  static const Recipe kRecipes[];
  static const std::vector<ActivationKind>& smooth_kinds();

  Builder& b_;
  Dice& dice_;
  const RandomGraphOptions& options_;
  const DType dtype_;
  GraphGenerator* around_ = nullptr;
  Body* body_ = nullptr;
  int depth_ = 0;
  bool takes_symbols_ = false;  // the call that is being made does
  bool sums_over_symbol_ = false;
  std::vector<Value> values_, counts_;
  std::vector<Update> updates_;
  int params_ = 0;
};

}  // namespace rlx
