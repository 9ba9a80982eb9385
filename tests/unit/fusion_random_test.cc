// Fused graphs against the same graphs without fusion, bit for bit.
#include <gtest/gtest.h>

#include <cmath>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/ir/text.h"
#include "rlx/runtime/session.h"
#include "rlx/testing/random_graph.h"
#include "rlx/transform/grad.h"

namespace rlx {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};

struct Outcome {
  std::vector<Array> outputs;
  std::map<std::string, Array> params;
  int64_t fused = 0;  // regions and groups
};

Outcome run(const RandomGraph& c, const CompileOptions& compile) {
  SessionOptions options;
  options.threads = 1;
  Session session(cpu_device(), options);
  session.weights().set(c.params);
  Executable e = session.compile(c.graph, compile);
  Outcome r;
  r.outputs = e.run(c.inputs);
  for (const auto& [name, value] : c.params) r.params[name] = session.weights().get(name);
  for (const PlanStep& s : e.plan().steps) {
    r.fused += s.op->name == "Group" || s.op->name == "ElementwiseRegion";
  }
  return r;
}

// Equal bits; any NaN equals any other (its payload does not survive conversions).
std::string difference(const Array& a, const Array& b) {
  if (a.same_bits(b)) return {};
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    const double x = a.at(i), y = b.at(i);
    if ((std::isnan(x) && std::isnan(y)) || (x == y && std::signbit(x) == std::signbit(y))) {
      continue;
    }
    return fmt::format("element {}: {:.17g} fused, {:.17g} alone", i, x, y);
  }
  return {};
}

void expect_same(const Outcome& fused, const Outcome& alone) {
  for (size_t i = 0; i < alone.outputs.size(); ++i) {
    EXPECT_EQ(difference(fused.outputs[i], alone.outputs[i]), "") << "output " << i;
  }
  for (const auto& [name, value] : alone.params) {
    EXPECT_EQ(difference(fused.params.at(name), value), "") << "param " << name;
  }
}

int64_t check(const RandomGraph& c) {
  CompileOptions fused, alone;
  fused.strict_rounding = fused.fuse_always = true;
  alone.fuse = false;
  const Outcome f = run(c, fused);
  expect_same(f, run(c, alone));
  if (::testing::Test::HasFailure()) ADD_FAILURE() << print(c.graph, {.max_elements = 4});
  return f.fused;
}

RandomGraph make(uint64_t seed) {
  return random_graph({seed, kDTypes[seed % 4], 3 + int(seed % 17), RandomGraphStyle::kFusion});
}

TEST(RandomFusion, KeepsTheBits) {
  int64_t fused = 0;
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    fused += check(make(seed));
    if (HasFailure()) return;
  }
  EXPECT_GT(fused, 3000);
}

Graph without_updates(const Graph& g) {
  Graph r(g.name());
  for (const Node& n : g.nodes()) r.append(n);
  for (const Output& o : g.outputs()) r.add_output(o.name, o.value);
  return r;
}

TEST(RandomFusion, KeepsTheBitsOfGradients) {
  for (uint64_t seed = 0; seed < 1200; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomGraph c = make(seed);
    c.graph = without_updates(c.graph);
    std::vector<std::string> names;
    for (Value v : c.graph.inputs()) names.push_back(c.graph.name_of(v));
    Dice dice(seed + 2);
    for (const Output& o : c.graph.outputs()) {
      const TensorType& t = c.graph.type(o.value);
      c.inputs.push_back(random_array(dice, t.dtype, t.shape.static_dims()));
    }
    c.graph = vjp(c.graph, names);
    check(c);
    if (HasFailure()) return;
  }
}

// Without strict rounding, values stay in f32 within a group: nearer to the truth, so near.
TEST(RandomFusion, SixteenBitsStayWideByDefault) {
  for (uint64_t seed = 2; seed < 200; seed += 4) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RandomGraph c = make(seed);
    CompileOptions fused, alone;
    fused.fuse_always = true;
    alone.fuse = false;
    const Outcome f = run(c, fused), a = run(c, alone);
    for (size_t i = 0; i < a.outputs.size(); ++i) {
      double scale = 1;
      for (int64_t k = 0; k < a.outputs[i].num_elements(); ++k) {
        if (std::isfinite(a.outputs[i].at(k))) {
          scale = std::max(scale, std::abs(a.outputs[i].at(k)));
        }
      }
      for (int64_t k = 0; k < a.outputs[i].num_elements(); ++k) {
        const double x = f.outputs[i].at(k), y = a.outputs[i].at(k);
        if (std::isfinite(x) && std::isfinite(y)) {
          ASSERT_NEAR(x, y, 0.25 * scale) << "output " << i << " element " << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace rlx
