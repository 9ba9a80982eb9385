// Calls that once failed, and their kin.
#include <gtest/gtest.h>

#include <limits>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/ops/build.h"
#include "rlx/ops/pool.h"
#include "rlx/runtime/eval.h"
#include "rlx/runtime/session.h"

namespace rlx {
namespace {

constexpr DType kF32 = DType::kF32;
constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

// The phases of a line are as many as its stride.
TEST(Regression, StrideOfASingleWindowCostsNothing) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {1, 1, 4});
  g.add_output("pool", pool(b, x, {.kernel_size = {2}, .stride = {kHuge}}));
  const std::vector<Array> y =
      eval(cpu_device(), g, std::vector{Array::from<float>({1, 2, 3, 4}, {1, 1, 4})});
  EXPECT_EQ(y[0].shape(), (Dims{1, 1, 1}));
  EXPECT_EQ(y[0].at(0), 2);
}

// Every param must be read before any of them is written.
TEST(Regression, ParamsRotateThroughTransposedViews) {
  Graph g;
  Builder b(g);
  const Value u = param(b, "u", kF32, {2, 2}, true), v = param(b, "v", kF32, {2, 2}, true);
  g.add_output("u", u);
  g.add_update("u", transpose(b, v, {1, 0}));
  g.add_update("v", transpose(b, u, {1, 0}));
  Session session(cpu_device());
  session.weights().set("u", Array::from<float>({1, 2, 3, 4}, {2, 2}));
  session.weights().set("v", Array::from<float>({5, 6, 7, 8}, {2, 2}));
  Executable e = session.compile(g);
  const std::vector<Array> y = e.run();
  EXPECT_TRUE(y[0].same_bits(Array::from<float>({1, 2, 3, 4}, {2, 2})));
  EXPECT_TRUE(session.weights().get("u").same_bits(Array::from<float>({5, 7, 6, 8}, {2, 2})));
  EXPECT_TRUE(session.weights().get("v").same_bits(Array::from<float>({1, 3, 2, 4}, {2, 2})));
}

}  // namespace
}  // namespace rlx
