// Random graphs for tests: every kind of call that compiles well is a row of a table. The same seed
// gives the same graph with every standard library.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "rlx/base/array.h"
#include "rlx/ir/graph.h"

namespace rlx {

class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return int64_t(engine_() % uint64_t(n)); }
  bool once_in(int64_t n) { return below(n) == 0; }
  double number() { return double(below(2001) - 1000) / 512; }  // in [-1.95, 1.95]
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[size_t(below(int64_t(from.size())))];
  }

 private:
  std::mt19937_64 engine_;
};

// Of a float dtype.
Array random_array(Dice& dice, DType dtype, const Dims& shape);

// Which calls are likely.
enum class RandomGraphStyle : uint8_t {
  kAnything,
  kFusion,  // long elementwise chains around products, norms and reductions; larger tensors
};

struct RandomGraphOptions {
  uint64_t seed = 0;
  DType dtype = DType::kF32;  // of all but conditions, indices and what is cast for a while
  int calls = 10;
  RandomGraphStyle style = RandomGraphStyle::kAnything;
};

// With inputs, params (frozen and updated ones), outputs and values for them.
struct RandomGraph {
  Graph graph;
  std::vector<Array> inputs;
  std::map<std::string, Array> params;
};
RandomGraph random_graph(const RandomGraphOptions& options);

}  // namespace rlx
