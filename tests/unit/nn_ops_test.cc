// Published values of the network ops, and the errors that only a run can find.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/build.h"
#include "rlx/ops/conv.h"
#include "rlx/ops/layer_norm.h"
#include "rlx/ops/pool.h"
#include "rlx/ops/softmax.h"
#include "rlx/ops/softmax_cross_entropy.h"
#include "rlx/runtime/eval.h"
#include "rlx/runtime/session.h"
#include "rlx/transform/vmap.h"

namespace rlx {

RLX_USE_OP(Softmax);
RLX_USE_OP(SoftmaxCrossEntropyWithLogits);
RLX_USE_OP(SoftmaxCrossEntropyBackward);
RLX_USE_OP(LayerNorm);
RLX_USE_OP(LayerNormBackwardGamma);
RLX_USE_OP(Conv);
RLX_USE_OP(Conv2dBackwardInput);
RLX_USE_OP(Conv2dBackwardWeight);
RLX_USE_OP(Pool);
RLX_USE_OP(MaxPool2dBackward);

namespace {

using reference::Tensor;

Tensor floats(Dims shape, std::vector<double> values) {
  Tensor t(DType::kF64, std::move(shape));
  t.f = std::move(values);
  return t;
}

Tensor labels(std::vector<int64_t> values) {
  Tensor t(DType::kI64, {int64_t(values.size())});
  t.i = std::move(values);
  return t;
}

template <class S>
std::vector<double> run(const OpDef& op, S attrs, std::vector<Tensor> operands, size_t result = 0) {
  return reference::evaluate(op, Attrs::of(op.fields, std::move(attrs)), operands)[result].f;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected,
                 double tolerance = 1e-12) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << "at " << i;
}

// 1, 2, 3, ...
std::vector<double> counting(int64_t n) {
  std::vector<double> v;
  for (int64_t i = 1; i <= n; ++i) v.push_back(double(i));
  return v;
}

TEST(NnOps, SoftmaxOfOneTwoThree) {
  // The usual textbook example, and its first column.
  expect_near(run(kSoftmaxOp, SoftmaxAttrs{-1}, {floats({1, 3}, {1, 2, 3})}),
              {0.09003057317038046, 0.24472847105479767, 0.6652409557748219});
  expect_near(run(kSoftmaxOp, SoftmaxAttrs{0}, {floats({2, 1}, {0, std::log(3.0)})}), {0.25, 0.75});
}

TEST(NnOps, CrossEntropyOfEqualLogitsIsTheLogOfTheirNumber) {
  const Tensor logits = floats({2, 4}, {1, 1, 1, 1, 0, 0, 0, std::log(3.0)});
  expect_near(run(kSoftmaxCrossEntropyWithLogitsOp, CrossEntropyAttrs{}, {logits, labels({2, 3})}),
              {std::log(4.0), std::log(2.0)});
  expect_near(run(kSoftmaxCrossEntropyBackwardOp, CrossEntropyAttrs{1},
                  {logits, labels({2, 1}), floats({2}, {4, 5})}),
              {1, 1, -3, 1, 0, 0, 0, 0});
}

TEST(NnOps, LabelOutOfRangeIsAnErrorOfTheRun) {
  const Tensor logits = floats({2, 4}, std::vector<double>(8, 0.0));
  for (const int64_t label : {int64_t(4), int64_t(-1)}) {
    try {
      run(kSoftmaxCrossEntropyWithLogitsOp, CrossEntropyAttrs{}, {logits, labels({0, label})});
      FAIL() << "label " << label << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kUser);
      EXPECT_NE(e.message().find("of row 1 is not in [0, 4)"), std::string::npos) << e.what();
    }
  }
}

TEST(NnOps, LayerNormOfTwoValues) {
  // Mean 2, variance 1.
  const Tensor x = floats({1, 2}, {1, 3}), gamma = floats({2}, {10, 20}),
               beta = floats({2}, {1, 2});
  expect_near(run(kLayerNormOp, LayerNormAttrs{-1, 0}, {x, gamma, beta}), {-9, 22});
  expect_near(run(kLayerNormBackwardGammaOp, LayerNormAttrs{-1, 0}, {x, floats({1, 2}, {5, 7})}),
              {-5, 7});
}

TEST(NnOps, ConvIsCrossCorrelation) {
  const Tensor x = floats({1, 1, 3, 3}, counting(9)), w = floats({1, 1, 2, 2}, {1, 2, 3, 4});
  expect_near(run(kConvOp, ConvAttrs{}, {x, w}), {37, 47, 67, 77});
  // ONNX's example for Conv without padding: a 5x5 count from 0 with a kernel of ones.
  std::vector<double> image = counting(25);
  for (double& v : image) v -= 1;
  expect_near(run(kConvOp, ConvAttrs{},
                  {floats({1, 1, 5, 5}, image), floats({1, 1, 3, 3}, std::vector<double>(9, 1.0))}),
              {54, 63, 72, 99, 108, 117, 144, 153, 162});
}

TEST(NnOps, ConvGradients) {
  const Tensor x = floats({1, 1, 3, 3}, counting(9)), w = floats({1, 1, 2, 2}, {1, 2, 3, 4});
  const Tensor dy = floats({1, 1, 2, 2}, {1, 0, 0, 1});
  expect_near(run(kConv2dBackwardInputOp, ConvBackwardAttrs{{}, {}, {}, 1, {1, 1, 3, 3}}, {dy, w}),
              {1, 2, 0, 3, 5, 2, 0, 3, 4});
  expect_near(run(kConv2dBackwardWeightOp, ConvBackwardAttrs{{}, {}, {}, 1, {1, 1, 2, 2}}, {x, dy}),
              {1 + 5, 2 + 6, 4 + 8, 5 + 9});
}

TEST(NnOps, PoolKinds) {
  const Tensor x = floats({1, 1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const auto pooled = [&](PoolKind kind) {
    return run(kPoolOp, PoolAttrs{kind, {2, 2}, {}, {}, true}, {x});
  };
  expect_near(pooled(PoolKind::kMax), {6, 8});
  expect_near(pooled(PoolKind::kMin), {1, 3});
  expect_near(pooled(PoolKind::kSum), {14, 22});
  expect_near(pooled(PoolKind::kMean), {3.5, 5.5});
  expect_near(pooled(PoolKind::kProd), {60, 672});
}

TEST(NnOps, MeanPoolCountsPaddingOrNot) {
  const Tensor x = floats({1, 1, 3}, {3, 6, 9});
  expect_near(run(kPoolOp, PoolAttrs{PoolKind::kMean, {3}, {1}, {1}, true}, {x}), {3, 6, 5});
  expect_near(run(kPoolOp, PoolAttrs{PoolKind::kMean, {3}, {1}, {1}, false}, {x}), {4.5, 6, 7.5});
}

TEST(NnOps, MaxPoolGivesTheGradientToTheFirst) {
  const Tensor x = floats({1, 1, 2, 2}, {7, 7, 7, 7});
  expect_near(
      run(kMaxPool2dBackwardOp, MaxPoolAttrs{{2, 2}, {}, {}}, {x, floats({1, 1, 1, 1}, {5})}),
      {5, 0, 0, 0});
}

// Number of nodes with the op.
int count_of(const Graph& g, const OpDef& op) {
  int n = 0;
  for (const Node& node : g.nodes()) n += node.op == &op;
  return n;
}

TEST(NnOps, VmapOfConvStaysOneConv) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {2, 4, 8, 8});
  const Value w = input(b, "w", DType::kF32, {6, 2, 3, 3});
  g.add_output("y", conv(b, x, w, {.stride = {1, 1}, .groups = 2}));
  for (const std::vector<std::string>& batched :
       {std::vector<std::string>{"x"}, std::vector<std::string>{"w"},
        std::vector<std::string>{"x", "w"}}) {
    const Graph v = vmap(g, Dim::symbol("b"), batched);
    EXPECT_EQ(count_of(v, kConvOp), 1);
    EXPECT_EQ(v.type(v.outputs()[0].value).shape, (Shape{Dim::symbol("b"), 2, 6, 6, 6}));
  }
}

TEST(NnOps, SymbolicSizesDecomposeAndInfer) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {Dim::symbol("n"), 3, Dim::symbol("h"), 8});
  const Value w = input(b, "w", DType::kF32, {4, 3, 3, 3});
  const Value y = conv(b, x, w, {.stride = {2, 2}, .padding = {1, 1}});
  EXPECT_EQ(b.shape(y).substitute({{"n", 5}, {"h", 9}}), (Shape{5, 4, 5, 4}));
  const std::vector<Value> operands = {x, w};
  const Value expanded = kConvOp.decompose.expand(b, g.node(y).attrs, operands)[0];
  EXPECT_EQ(b.shape(expanded), b.shape(y));
}

// Numbers whose sums round.
Array mixed(Dims shape, uint32_t seed) {
  Array a = Array::uninitialized(DType::kF32, std::move(shape));
  for (float& v : a.mutable_data<float>()) {
    seed = seed * 1664525u + 1013904223u;
    v = float(seed >> 8) / float(1 << 23) - 1;
  }
  return a;
}

// Cells [begin, begin + count) of axis 0 or 1.
Array part(const Array& a, int64_t axis, int64_t begin, int64_t count) {
  Graph g;
  Builder b(g);
  const Dims& shape = a.shape();
  const Value x = input(b, "x", DType::kF32, Shape(std::span<const int64_t>(shape)));
  g.add_output("y", narrow(b, x, axis, begin, count));
  return eval(cpu_device(), g, std::vector<Array>{a})[0];
}

Array input_gradient(const Array& dy, const Array& w, const ConvAttrs& a, Dims x) {
  Graph g;
  Builder b(g);
  const Value y = input(b, "dy", DType::kF32, Shape(std::span<const int64_t>(dy.shape())));
  const Value weight = input(b, "w", DType::kF32, Shape(std::span<const int64_t>(w.shape())));
  g.add_output("dx", conv_backward_input(b, y, weight, a, Shape(std::span<const int64_t>(x))));
  return eval(cpu_device(), g, std::vector<Array>{dy, w})[0];
}

Array weight_gradient(const Array& x, const Array& dy, const ConvAttrs& a, Dims w) {
  Graph g;
  Builder b(g);
  const Value in = input(b, "x", DType::kF32, Shape(std::span<const int64_t>(x.shape())));
  const Value y = input(b, "dy", DType::kF32, Shape(std::span<const int64_t>(dy.shape())));
  g.add_output("dw", conv_backward_weight(b, in, y, a, Shape(std::span<const int64_t>(w))));
  return eval(cpu_device(), g, std::vector<Array>{x, dy})[0];
}

// Few images are cut into blocks of channels, which then hold more lines.
TEST(NnOps, TheGradientOfAnImageHasTheSameBitsInABatch) {
  const ConvAttrs same{.padding = {1, 1}};
  const Array w = mixed({4, 64, 3, 3}, 1), dy = mixed({16, 4, 56, 56}, 2);
  const Array batch = input_gradient(dy, w, same, {16, 64, 56, 56});
  for (const int64_t image : {0, 7}) {
    const Array alone = input_gradient(part(dy, 0, image, 1), w, same, {1, 64, 56, 56});
    EXPECT_TRUE(alone.same_bits(part(batch, 0, image, 1))) << "image " << image;
  }
  const Array strided = mixed({16, 4, 28, 28}, 3);
  const ConvAttrs halves{.stride = {2, 2}, .padding = {1, 1}};
  const Array strided_batch = input_gradient(strided, w, halves, {16, 64, 56, 56});
  const Array strided_alone = input_gradient(part(strided, 0, 5, 1), w, halves, {1, 64, 56, 56});
  EXPECT_TRUE(strided_alone.same_bits(part(strided_batch, 0, 5, 1)));
}

// More channels mean smaller blocks of lines.
TEST(NnOps, TheGradientOfAChannelHasTheSameBitsAmongOthers) {
  const ConvAttrs same{.padding = {1, 1}};
  const Array x = mixed({3, 64, 40, 40}, 4), dy = mixed({3, 8, 40, 40}, 5);
  const Array all = weight_gradient(x, dy, same, {8, 64, 3, 3});
  const Array some = weight_gradient(part(x, 1, 16, 2), dy, same, {8, 2, 3, 3});
  EXPECT_TRUE(some.same_bits(part(all, 1, 16, 2)));
  const Array outputs = weight_gradient(x, part(dy, 1, 3, 2), same, {2, 64, 3, 3});
  EXPECT_TRUE(outputs.same_bits(part(all, 0, 3, 2)));
}

// One channel alone has a kernel of its own.
TEST(NnOps, TheGradientOfADepthwiseWeightHasTheSameBitsAsOfAWide) {
  for (const auto& [x_shape, dy_shape, w] :
       {std::array<Dims, 3>{Dims{3, 2, 30, 41}, Dims{3, 2, 14, 20}, Dims{2, 2, 4, 3}},
        std::array<Dims, 3>{Dims{2, 2, 1, 1300}, Dims{2, 2, 1, 650}, Dims{2, 2, 1, 2}}}) {
    const ConvAttrs a{.stride = {2, 2}};
    const Array x = mixed(x_shape, 8), dy = mixed(dy_shape, 9);
    const Array all = weight_gradient(x, dy, a, w);
    const Array one = weight_gradient(part(x, 1, 1, 1), part(dy, 1, 0, 1), a, {1, 1, w[2], w[3]});
    EXPECT_TRUE(one.same_bits(part(part(all, 0, 0, 1), 1, 1, 1)));
  }
}

// So many that the slices of the batch are summed one after the other.
TEST(NnOps, TheGradientOfALargeWeightIsSummedAlike) {
  const Array x = mixed({4, 768, 32, 32}, 6), dy = mixed({4, 768, 32, 32}, 7);
  const Array all = weight_gradient(x, dy, {}, {768, 768, 1, 1});
  const Array some = weight_gradient(part(x, 1, 700, 3), part(dy, 1, 5, 3), {}, {3, 3, 1, 1});
  EXPECT_TRUE(some.same_bits(part(part(all, 0, 5, 3), 1, 700, 3)));
}

// The result of `g` by the kernels and by decompositions.
std::vector<Array> both_ways(const Graph& g, const std::vector<Array>& inputs) {
  std::vector<Array> results;
  for (const bool decompose : {false, true}) {
    CompileOptions options;
    options.legalize.force_decompose = decompose;
    Session session(cpu_device());
    for (Array& a : session.compile(g, options).run(inputs)) results.push_back(std::move(a));
  }
  return results;
}

// Nothing may grow with the stride of a single window.
TEST(NnOps, HugeStrideOfOneWindow) {
  const int64_t stride = int64_t{1} << 40;
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {1, 1, 8}), w = input(b, "w", DType::kF32, {1, 1, 1});
  const ConvAttrs a{.stride = {stride}};
  const Value y = conv(b, x, w, a);
  g.add_output("y", y);
  g.add_output("dx", conv_backward_input(b, y, w, a, {1, 1, 8}));
  g.add_output("dw", conv_backward_weight(b, x, y, a, {1, 1, 1}));
  g.add_output("max", pool(b, x, {PoolKind::kMax, {2}, {stride}, {}, true}));
  g.add_output("t", max_pool_select(b, x, x, {{2}, {stride}, {}}));
  Array data = Array::uninitialized(DType::kF32, {1, 1, 8});
  for (size_t i = 0; i < 8; ++i) data.mutable_data<float>()[i] = 3 + float(i);
  Array weight = Array::uninitialized(DType::kF32, {1, 1, 1});
  weight.mutable_data<float>()[0] = 2;
  const std::vector<Array> got = both_ways(g, {data, weight});
  ASSERT_EQ(got.size(), 10u);
  for (const size_t first : {0, 5}) {
    EXPECT_EQ(got[first].data<float>()[0], 6);
    EXPECT_EQ(got[first + 1].data<float>()[0], 12);
    EXPECT_EQ(got[first + 1].data<float>()[7], 0);
    EXPECT_EQ(got[first + 2].data<float>()[0], 18);
    EXPECT_EQ(got[first + 3].data<float>()[0], 4);
    EXPECT_EQ(got[first + 4].data<float>()[0], 4);
  }
}

TEST(NnOps, LargeWindowOverFewCells) {
  const int64_t size = int64_t{1} << 18;
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {1, 1, 8});
  g.add_output("sum", pool(b, x, {PoolKind::kSum, {size}, {size}, {size - 4}, true}));
  Array data = Array::uninitialized(DType::kF32, {1, 1, 8});
  for (float& v : data.mutable_data<float>()) v = 1;
  for (const Array& y : both_ways(g, {data})) {
    ASSERT_EQ(y.shape(), (Dims{1, 1, 2}));
    EXPECT_EQ(y.data<float>()[0], 4);
    EXPECT_EQ(y.data<float>()[1], 4);
  }
}

}  // namespace
}  // namespace rlx
