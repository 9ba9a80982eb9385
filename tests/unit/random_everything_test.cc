// Random graphs of all kinds of calls, control flow included, through everything that must not
// change a bit. RLX_RANDOM_GRAPHS=N makes N graphs per test, RLX_RANDOM_SEED=S begins at seed S.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/ir/text.h"
#include "rlx/ops/control.h"
#include "rlx/runtime/session.h"
#include "rlx/testing/random_check.h"
#include "rlx/transform/grad.h"
#include "rlx/transform/jvp.h"

namespace rlx {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// What a reader needs to see it again.
std::string how_to_repeat(const RandomGraph& c, uint64_t seed) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / fmt::format("rlx-random-{}", seed)).string();
  return fmt::format("{}\n{}", save_for_cli(c, folder), print(c.graph, {.max_elements = 8}));
}

void add_kinds(const Graph& g, int depth, std::set<std::string>* kinds) {
  for (const Node& n : g.nodes()) {
    kinds->insert(std::string(n.op->name) + (depth > 0 ? " inside" : ""));
    for (const Field& f : n.attrs.table()->fields) {
      if (f.type != FieldType::kGraph) continue;
      const FieldValue v = f.get(n.attrs.get());
      const auto* body = std::get_if<GraphRef>(&v);
      if (body && *body) add_kinds(**body, depth + 1, kinds);
    }
  }
}

RandomGraphOptions options_of(uint64_t seed) {
  RandomGraphOptions o;
  o.seed = seed;
  o.dtype = kDTypes[seed % 4];
  o.calls = 2 + int(seed / 4 % 13);
  o.style = RandomGraphStyle::kEverything;
  return o;
}

TEST(RandomEverything, KeepsTheBits) {
  const uint64_t first = from_environment("RLX_RANDOM_SEED", 0);
  const uint64_t graphs = from_environment("RLX_RANDOM_GRAPHS", 2600);
  std::set<std::string> kinds;
  int failures = 0;
  for (uint64_t seed = first; seed < first + graphs; ++seed) {
    const RandomGraph c = random_graph(options_of(seed));
    add_kinds(c.graph, 0, &kinds);
    const std::string text = check_random_graph(c);
    if (text.empty()) continue;
    ADD_FAILURE() << "seed " << seed << ": " << text << "\n" << how_to_repeat(c, seed);
    if (++failures == 3) return;
  }
  if (graphs < 2600) return;
  for (const char* kind : {"Scan",
                           "Scan inside",
                           "While",
                           "While inside",
                           "If",
                           "If inside",
                           "CustomFn",
                           "KvAppend",
                           "KvAppend inside",
                           "Sort inside",
                           "TopK",
                           "Attention",
                           "Attention inside",
                           "Rope",
                           "RmsNorm",
                           "LayerNormBackwardInput",
                           "DynamicSlice inside",
                           "DequantMatMul inside",
                           "QMatMul inside",
                           "RngNormal inside",
                           "DimSize"}) {
    EXPECT_TRUE(kinds.contains(kind)) << kind;
  }
}

TEST(RandomEverything, SymbolicSizesKeepTheBits) {
  const uint64_t first = from_environment("RLX_RANDOM_SEED", 0);
  const uint64_t graphs = from_environment("RLX_RANDOM_GRAPHS", 400);
  int failures = 0;
  for (uint64_t seed = first; seed < first + graphs; ++seed) {
    RandomGraphOptions options = options_of(seed);
    options.symbolic = true;
    const RandomGraph c = random_graph(options);
    const std::string text = check_random_graph(c);
    if (text.empty()) continue;
    ADD_FAILURE() << "seed " << seed << ": " << text << "\n" << how_to_repeat(c, seed);
    if (++failures == 3) return;
  }
}

TEST(RandomEverything, BoundedSizesKeepTheBits) {
  const uint64_t first = from_environment("RLX_RANDOM_SEED", 0);
  const uint64_t graphs = from_environment("RLX_RANDOM_GRAPHS", 600);
  int failures = 0;
  uint64_t ran = 0;
  for (uint64_t seed = first; seed < first + graphs; ++seed) {
    RandomGraphOptions options = options_of(seed);
    options.symbolic = true;
    const RandomGraph c = random_graph(options);
    bool supported = false;
    const std::string text = check_bounded_sizes(c, &supported);
    ran += uint64_t(supported);
    if (text.empty()) continue;
    ADD_FAILURE() << "seed " << seed << ": " << text << "\n" << how_to_repeat(c, seed);
    if (++failures == 3) return;
  }
  EXPECT_GT(ran, graphs / 2);
}

// --- Derivatives

Graph without_updates(const Graph& g) {
  Graph r(g.name());
  for (const Node& n : g.nodes()) r.append(n);
  for (const Output& o : g.outputs()) r.add_output(o.name, o.value);
  return r;
}

std::vector<Array> run(const Graph& graph, const RandomGraph& c, std::vector<Array> more) {
  Session session(cpu_device(), {.threads = 1});
  session.weights().set(c.params);
  more.insert(more.begin(), c.inputs.begin(), c.inputs.end());
  return session.compile(graph).run(more);
}

struct Product {
  double sum = 0, scale = 0;
};
Product product(const std::vector<Array>& a, const std::vector<Array>& b, size_t first) {
  Product p;
  for (size_t i = 0; i < a.size(); ++i) {
    for (int64_t k = 0; k < a[i].num_elements(); ++k) {
      const double term = a[i].at(k) * b[first + i].at(k);
      p.sum += term;
      p.scale += std::abs(term);
    }
  }
  return p;
}

// <ct, J t> of forward mode is <J^T ct, t> of reverse mode.
void check_derivatives(uint64_t seed) {
  RandomGraphOptions options = options_of(seed);
  options.dtype = DType::kF64;
  options.differentiable = true;
  options.calls = 2 + int(seed % 7);
  RandomGraph c = random_graph(options);
  c.graph = without_updates(c.graph);
  SCOPED_TRACE(fmt::format("seed {}\n{}", seed, print(c.graph, {.max_elements = 4})));
  std::vector<std::string> names;
  std::vector<Array> tangents, cotangents;
  Dice dice(seed + 2);
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (c.inputs[i].dtype() != DType::kF64) continue;
    names.push_back(c.graph.name_of(c.graph.inputs()[i]));
    tangents.push_back(random_array(dice, DType::kF64, c.inputs[i].shape()));
  }
  for (const Output& o : c.graph.outputs()) {
    cotangents.push_back(
        random_array(dice, DType::kF64, c.graph.type(o.value).shape.static_dims()));
  }
  const size_t outputs = cotangents.size();
  const Product forward = product(cotangents, run(jvp(c.graph, names), c, tangents), outputs);
  const Product backward = product(tangents, run(vjp(c.graph, names), c, cotangents), outputs);
  if (!std::isfinite(forward.sum) && !std::isfinite(backward.sum)) return;
  ASSERT_NEAR(forward.sum, backward.sum, 1e-9 * (forward.scale + backward.scale));
}

TEST(RandomEverything, ForwardAndReverseModeAgree) {
  const uint64_t first = from_environment("RLX_RANDOM_SEED", 0);
  const uint64_t graphs = from_environment("RLX_RANDOM_GRAPHS", 300);
  for (uint64_t seed = first; seed < first + graphs; ++seed) {
    try {
      check_derivatives(seed);
    } catch (const Error& e) {
      FAIL() << "seed " << seed << ": " << e.what();
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace rlx
