// Random graphs for tests: every kind of call that compiles well is a row of a table. The same seed
// gives the same graph with every standard library.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rlx/base/array.h"
#include "rlx/ir/graph.h"

namespace rlx {

class Dice {
 public:
  // The first throws are read from `choices`, a byte each.
  explicit Dice(uint64_t seed, std::span<const uint8_t> choices = {})
      : engine_(seed), choices_(choices) {}
  int64_t below(int64_t n) {
    if (choices_.empty()) return int64_t(engine_() % uint64_t(n));
    const uint64_t choice = choices_[0];
    choices_ = choices_.subspan(1);
    return int64_t(choice % uint64_t(n));
  }
  bool once_in(int64_t n) { return below(n) == 0; }
  double number() { return double(below(2001) - 1000) / 512; }  // in [-1.95, 1.95]
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[size_t(below(int64_t(from.size())))];
  }

 private:
  std::mt19937_64 engine_;
  std::span<const uint8_t> choices_;
};

// Floats in [-1.95, 1.95], integers from 0 to 3.
Array random_array(Dice& dice, DType dtype, const Dims& shape);

// Which calls are likely.
enum class RandomGraphStyle : uint8_t {
  kAnything,
  kFusion,      // long elementwise chains around products, norms and reductions; larger tensors
  kEverything,  // control flow, windows, sorting, attention, quantized products, draws, state
};

struct RandomGraphOptions {
  uint64_t seed = 0;
  DType dtype = DType::kF32;  // of all but conditions, indices and what is cast for a while
  int calls = 10;
  RandomGraphStyle style = RandomGraphStyle::kAnything;
  // Some inputs have an axis of the size kRandomSymbol. With kEverything only.
  bool symbolic = false;
  // What is made has derivatives in both modes and stays finite.
  bool differentiable = false;
  std::span<const uint8_t> choices = {};  // see Dice
};

inline constexpr std::string_view kRandomSymbol = "n";
inline constexpr int64_t kRandomSymbolMost = 6;

// With inputs, params (frozen and updated ones), outputs and values for them.
struct RandomGraph {
  Graph graph;
  std::vector<Array> inputs;
  std::map<std::string, Array> params;
  SymbolBindings sizes = {};      // those of the inputs
  bool sums_over_symbol = false;  // a sum or product runs along the symbolic axis
};
RandomGraph random_graph(const RandomGraphOptions& options);
std::vector<Array> random_inputs(const Graph& graph, uint64_t seed, const SymbolBindings& sizes);

// Writes graph, inputs and params into the folder; returns the command that runs them.
std::string save_for_cli(const RandomGraph& c, const std::string& folder);

}  // namespace rlx
