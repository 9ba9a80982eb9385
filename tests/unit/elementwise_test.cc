// Published values and edge rules of the elementwise ops: of the reference, which everything else
// is compared with, and of the graphs that their rules build.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/activation.h"
#include "rlx/ops/binary.h"
#include "rlx/ops/build.h"
#include "rlx/ops/cast.h"
#include "rlx/ops/compare.h"
#include "rlx/ops/rules.h"
#include "rlx/ops/samples.h"

namespace rlx {

RLX_USE_OP(Activation);
RLX_USE_OP(ActivationBackward);
RLX_USE_OP(Binary);
RLX_USE_OP(Cast);
RLX_USE_OP(Compare);
RLX_USE_OP(Input);
RLX_USE_OP(Param);
RLX_USE_OP(ReluBackward);
RLX_USE_OP(Where);

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

reference::Tensor run(const OpDef& op, const Attrs& attrs, const std::vector<Array>& operands) {
  std::vector<reference::Tensor> wide;
  wide.reserve(operands.size());
  for (const Array& a : operands) wide.push_back(reference::widen(a));
  return reference::evaluate(op, attrs, wide)[0];
}

template <class T>
Array vector_of(std::initializer_list<T> values) {
  return Array::from<T>(values, {int64_t(values.size())});
}

template <class T>
std::vector<int64_t> integers(BinaryKind kind, std::initializer_list<T> x,
                              std::initializer_list<T> y) {
  return run(kBinaryOp, Attrs::of(kBinaryOp.fields, BinaryAttrs{kind}),
             {vector_of(x), vector_of(y)})
      .i;
}

double real(BinaryKind kind, double x, double y) {
  return run(kBinaryOp, Attrs::of(kBinaryOp.fields, BinaryAttrs{kind}),
             {Array::scalar(x), Array::scalar(y)})
      .f[0];
}

double act(ActivationKind kind, double x) {
  return run(kActivationOp, Attrs::of(kActivationOp.fields, ActivationAttrs{kind, false}),
             {Array::scalar(x)})
      .f[0];
}

double slope(ActivationKind kind, double x) {
  return run(kActivationBackwardOp,
             Attrs::of(kActivationBackwardOp.fields, ActivationAttrs{kind, false}),
             {Array::scalar(x), Array::scalar(1.0)})
      .f[0];
}

using I = std::vector<int64_t>;

TEST(Binary, IntegersWrap) {
  EXPECT_EQ(integers<int8_t>(BinaryKind::kAdd, {127, -128}, {1, -1}), (I{-128, 127}));
  EXPECT_EQ(integers<uint8_t>(BinaryKind::kSub, {0}, {1}), (I{255}));
  EXPECT_EQ(integers<int32_t>(BinaryKind::kMul, {65536}, {65536}), (I{0}));
}

TEST(Binary, IntegerDivisionNeverTraps) {
  EXPECT_EQ(integers<int32_t>(BinaryKind::kDiv, {-7, 7, 5}, {2, -2, 0}), (I{-3, -3, -1}));
  EXPECT_EQ(integers<uint8_t>(BinaryKind::kDiv, {5}, {0}), (I{255}));
  const int64_t smallest = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(integers<int64_t>(BinaryKind::kDiv, {smallest}, {-1}), (I{smallest}));
  EXPECT_EQ(integers<int8_t>(BinaryKind::kDiv, {-128}, {-1}), (I{-128}));
  EXPECT_EQ(integers<int64_t>(BinaryKind::kMod, {smallest, -7, 7, 9}, {-1, 3, -3, 0}),
            (I{0, -1, 1, 9}));
  EXPECT_EQ(integers<uint64_t>(BinaryKind::kDiv, {~uint64_t(0)}, {2}),
            (I{std::numeric_limits<int64_t>::max()}));
}

TEST(Binary, IntegerPowers) {
  EXPECT_EQ(integers<int32_t>(BinaryKind::kPow, {3, 0, -2, 10}, {4, 0, 3, 9}),
            (I{81, 1, -8, 1000000000}));
  EXPECT_EQ(integers<int32_t>(BinaryKind::kPow, {1, -1, -1, 2, 0}, {-5, -3, -4, -1, -1}),
            (I{1, -1, 1, 0, 0}));
  EXPECT_EQ(integers<uint8_t>(BinaryKind::kPow, {2, 3}, {8, 5}), (I{0, 243}));
}

TEST(Binary, ShiftsBeyondTheWidth) {
  EXPECT_EQ(integers<int8_t>(BinaryKind::kShl, {1, 1, 1, 1}, {7, 8, -1, 100}), (I{-128, 0, 0, 0}));
  EXPECT_EQ(integers<int8_t>(BinaryKind::kShr, {-128, -128, 64, -1}, {7, 8, 8, -1}),
            (I{-1, -1, 0, -1}));
  EXPECT_EQ(integers<uint64_t>(BinaryKind::kShr, {~uint64_t(0), ~uint64_t(0)}, {63, 64}),
            (I{1, 0}));
}

TEST(Binary, MaxAndMinKeepNaNAndOrderZeros) {
  EXPECT_TRUE(std::isnan(real(BinaryKind::kMax, kNaN, 1)));
  EXPECT_TRUE(std::isnan(real(BinaryKind::kMin, 1, kNaN)));
  EXPECT_FALSE(std::signbit(real(BinaryKind::kMax, -0.0, 0.0)));
  EXPECT_TRUE(std::signbit(real(BinaryKind::kMin, 0.0, -0.0)));
}

TEST(Binary, PowAndModAreThoseOfC) {
  EXPECT_EQ(real(BinaryKind::kPow, kNaN, 0), 1);
  EXPECT_EQ(real(BinaryKind::kPow, 1, kNaN), 1);
  EXPECT_TRUE(std::isnan(real(BinaryKind::kPow, -8, 1.0 / 3)));
  EXPECT_EQ(real(BinaryKind::kMod, -5.5, 2), -1.5);
  EXPECT_EQ(real(BinaryKind::kMod, 5.5, -2), 1.5);
  EXPECT_TRUE(std::isnan(real(BinaryKind::kMod, 1, 0)));
}

TEST(Compare, NaNIsUnequalToEverything) {
  const Array x = vector_of<double>({kNaN, 0.0, 1.0}), y = vector_of<double>({kNaN, -0.0, kNaN});
  const auto of = [&](CompareKind k) {
    return run(kCompareOp, Attrs::of(kCompareOp.fields, CompareAttrs{k}), {x, y}).i;
  };
  EXPECT_EQ(of(CompareKind::kEq), (I{0, 1, 0}));
  EXPECT_EQ(of(CompareKind::kNe), (I{1, 0, 1}));
  EXPECT_EQ(of(CompareKind::kLe), (I{0, 1, 0}));
  EXPECT_EQ(of(CompareKind::kGt), (I{0, 0, 0}));
}

TEST(Compare, UnsignedNumbersAreNotNegative) {
  const Array x = vector_of<uint64_t>({~uint64_t(0)}), y = vector_of<uint64_t>({1});
  const Attrs greater = Attrs::of(kCompareOp.fields, CompareAttrs{CompareKind::kGt});
  EXPECT_EQ(run(kCompareOp, greater, {x, y}).i, (I{1}));
}

TEST(Where, IgnoresWhatIsNotSelected) {
  const auto y = run(
      kWhereOp, Attrs::of(kWhereOp.fields, NoAttrs{}),
      {vector_of<bool>({true, false}), vector_of<double>({1, kNaN}), vector_of<double>({kInf, 2})});
  EXPECT_EQ(y.f, (std::vector<double>{1, 2}));
}

reference::Tensor cast_to(DType to, std::initializer_list<double> values) {
  return run(kCastOp, Attrs::of(kCastOp.fields, CastAttrs{to}), {vector_of(values)});
}

TEST(Cast, FloatsToIntegersSaturate) {
  EXPECT_EQ(cast_to(DType::kI8, {1.9, -1.9, 300, -300, kNaN, kInf}).i,
            (I{1, -1, 127, -128, 0, 127}));
  EXPECT_EQ(cast_to(DType::kU8, {-0.9, -5, 255.5, 256}).i, (I{0, 0, 255, 255}));
  EXPECT_EQ(cast_to(DType::kI64, {0x1p63, -0x1p63}).i,
            (I{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}));
  EXPECT_EQ(cast_to(DType::kU64, {0x1p63, 0x1p64}).i, (I{std::numeric_limits<int64_t>::min(), -1}));
}

TEST(Cast, ToBoolIsUnequalToZero) {
  EXPECT_EQ(cast_to(DType::kBool, {0, -0.0, 0.1, kNaN, -2}).i, (I{0, 0, 1, 1, 1}));
}

TEST(Cast, IntegersKeepTheirLowBits) {
  const auto y = run(kCastOp, Attrs::of(kCastOp.fields, CastAttrs{DType::kI8}),
                     {vector_of<int32_t>({255, 128, -129})});
  EXPECT_EQ(y.i, (I{-1, -128, 127}));
}

// Values of published tables to double precision; Gelu(x) is x times the normal distribution.
TEST(Activation, PublishedValues) {
  EXPECT_NEAR(act(ActivationKind::kGelu, 1), 0.8413447460685429, 1e-15);
  EXPECT_NEAR(act(ActivationKind::kGelu, -3), -0.004049694094890283, 1e-16);
  EXPECT_NEAR(act(ActivationKind::kGeluApprox, 1), 0.8411919906082768, 1e-15);
  EXPECT_NEAR(act(ActivationKind::kSilu, 1), 0.7310585786300049, 1e-15);
  EXPECT_NEAR(act(ActivationKind::kSoftplus, 0), 0.6931471805599453, 1e-15);
  EXPECT_NEAR(act(ActivationKind::kErf, 0.5), 0.5204998778130465, 1e-15);
  EXPECT_NEAR(act(ActivationKind::kMish, 1), 0.8650983882673103, 1e-15);
  EXPECT_NEAR(act(ActivationKind::kLogSigmoid, -1), -1.3132616875182228, 1e-15);
  EXPECT_NEAR(act(ActivationKind::kHardSwish, 1), 2.0 / 3, 1e-15);
  EXPECT_NEAR(act(ActivationKind::kElu, -1), std::expm1(-1.0), 1e-15);
}

TEST(Activation, RoundsTiesToEven) {
  EXPECT_EQ(act(ActivationKind::kRound, 0.5), 0);
  EXPECT_EQ(act(ActivationKind::kRound, 1.5), 2);
  EXPECT_EQ(act(ActivationKind::kRound, 2.5), 2);
  EXPECT_EQ(act(ActivationKind::kRound, -3.5), -4);
}

TEST(Activation, NaNGivesNaNForEveryKind) {
  for (size_t k = 0; k < kEnumCount<ActivationKind>; ++k) {
    EXPECT_TRUE(std::isnan(act(ActivationKind(k), kNaN))) << enum_name(ActivationKind(k));
  }
}

TEST(Activation, LimitsAtInfinity) {
  for (ActivationKind k :
       {ActivationKind::kGelu, ActivationKind::kGeluApprox, ActivationKind::kSilu,
        ActivationKind::kMish, ActivationKind::kHardSwish}) {
    EXPECT_EQ(act(k, -kInf), 0) << enum_name(k);
    EXPECT_EQ(act(k, kInf), kInf) << enum_name(k);
    EXPECT_EQ(slope(k, -kInf), 0) << enum_name(k);
    EXPECT_EQ(slope(k, kInf), 1) << enum_name(k);
  }
  EXPECT_EQ(act(ActivationKind::kSoftsign, -kInf), -1);
  EXPECT_EQ(act(ActivationKind::kLogSigmoid, -kInf), -kInf);
}

TEST(ActivationBackward, Edges) {
  EXPECT_EQ(slope(ActivationKind::kRelu, 0), 0);
  EXPECT_EQ(slope(ActivationKind::kRelu, kNaN), 1);
  EXPECT_EQ(slope(ActivationKind::kAbs, 0), 0);
  EXPECT_EQ(slope(ActivationKind::kSqrt, 0), kInf);
  EXPECT_EQ(slope(ActivationKind::kRsqrt, 0), -kInf);
  EXPECT_EQ(slope(ActivationKind::kHardSwish, -3), -0.5);
  EXPECT_NEAR(slope(ActivationKind::kGelu, 1), 1.0833154705876864, 1e-15);
  EXPECT_NEAR(slope(ActivationKind::kTanh, 20), 1.6993417021166355e-17, 1e-30);
}

// The gradient of z = x o y (or a part of it) for cotangent 1.
std::vector<double> gradient(BinaryKind kind, double x, double y) {
  Graph g;
  Builder b(g);
  const Value a = input(b, "x", DType::kF64, {}), c = input(b, "y", DType::kF64, {});
  const Value z = binary(b, kind, a, c);
  const Node& node = g.node(z);
  const Value one = scalar(b, DType::kF64, 1);
  const std::vector<Value> grads =
      kBinaryOp.vjp(b, {kBinaryOp, node.attrs, node.operands, {&z, 1}}, {&one, 1});
  g.add_output("dx", grads[0]);
  g.add_output("dy", grads[1]);
  const auto results = reference::evaluate(
      g, {{"x", reference::widen(Array::scalar(x))}, {"y", reference::widen(Array::scalar(y))}});
  return {results[0].f[0], results[1].f[0]};
}

using Pair = std::vector<double>;

TEST(BinaryGradient, TiesShareByHalves) {
  EXPECT_EQ(gradient(BinaryKind::kMax, 2, 2), (Pair{0.5, 0.5}));
  EXPECT_EQ(gradient(BinaryKind::kMin, 1, 2), (Pair{1, 0}));
}

TEST(BinaryGradient, PowIsFiniteAtZero) {
  EXPECT_EQ(gradient(BinaryKind::kPow, 0, 0), (Pair{0, 0}));
  EXPECT_EQ(gradient(BinaryKind::kPow, 0, 2), (Pair{0, 0}));
  EXPECT_EQ(gradient(BinaryKind::kPow, 0, 1), (Pair{1, 0}));
  EXPECT_EQ(gradient(BinaryKind::kPow, -2, 3)[0], 12);
  EXPECT_TRUE(std::isnan(gradient(BinaryKind::kPow, -2, 3)[1]));
}

TEST(BinaryGradient, ModCountsWholeQuotients) {
  EXPECT_EQ(gradient(BinaryKind::kMod, 7.5, 2), (Pair{1, -3}));
  EXPECT_EQ(gradient(BinaryKind::kMod, -7.5, 2), (Pair{1, 3}));
}

TEST(Unbroadcast, SumsWhatBroadcastingRepeated) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {Dim::symbol("n"), 3, 4});
  EXPECT_EQ(b.shape(unbroadcast(b, x, {3, 1})), (Shape{3, 1}));
  EXPECT_EQ(b.shape(unbroadcast(b, x, {})), (Shape{}));
  EXPECT_EQ(unbroadcast(b, x, {Dim::symbol("n"), 3, 4}), x);
}

TEST(BatchElementwise, AlignsOperandsOfDifferentRank) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {5, 4});  // batch of vectors
  const Value y = input(b, "y", DType::kF32, {3, 4});  // not batched
  const Attrs add = Attrs::of(kBinaryOp.fields, BinaryAttrs{BinaryKind::kAdd});
  const std::vector<Value> operands{x, y};
  const std::vector<uint8_t> batched{1, 0};
  const Value z = batch_elementwise(b, {kBinaryOp, add, operands, {}}, batched, 5)[0];
  EXPECT_EQ(b.shape(z), (Shape{5, 3, 4}));
}

// The conformance driver leaves inputs and params out, for they compute nothing.
TEST(Leaf, WrongCallsSaySo) {
  for (const OpDef* op : {&kInputOp, &kParamOp}) {
    for (const WrongCall& w : samples_of(*op).wrong_calls()) {
      try {
        infer_call(*op, w.attrs, w.operands);
        ADD_FAILURE() << op->name << "/" << w.name << ": no error";
      } catch (const Error& e) {
        EXPECT_NE(e.message().find(w.error), std::string::npos) << w.name << ": " << e.message();
      }
    }
  }
}

TEST(Builder, NamesTheOpAndItsTypes) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {2}), y = input(b, "y", DType::kF64, {2});
  try {
    add(b, x, y);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUser);
    EXPECT_NE(e.message().find("Binary(f32[2], f64[2])"), std::string::npos) << e.message();
    EXPECT_NE(e.message().find("cast one of them"), std::string::npos) << e.message();
  }
}

}  // namespace
}  // namespace rlx
