// Published values and edge rules of the shape, reduction, product, gather and random ops, by the
// reference; and what inference and batching make of symbolic shapes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "rlx/backend/reference/reference.h"
#include "rlx/base/error.h"
#include "rlx/compile/kernel.h"
#include "rlx/ir/builder.h"
#include "rlx/ops/build.h"
#include "rlx/ops/dot_general.h"
#include "rlx/ops/gather.h"
#include "rlx/ops/reduce.h"
#include "rlx/ops/rng.h"
#include "rlx/ops/shape_ops.h"

namespace rlx {

namespace cpu {
extern const KernelList kGatherCpuKernels;
extern const KernelList kGatherBackwardCpuKernels;
extern const KernelList kReduceCpuKernels;
}  // namespace cpu

RLX_USE_OP(Concat);
RLX_USE_OP(DotGeneral);
RLX_USE_OP(Expand);
RLX_USE_OP(Gather);
RLX_USE_OP(GatherBackward);
RLX_USE_OP(MatMul);
RLX_USE_OP(Narrow);
RLX_USE_OP(Reduce);
RLX_USE_OP(Reshape);
RLX_USE_OP(RngNormal);
RLX_USE_OP(RngUniform);
RLX_USE_OP(Transpose);

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
using Reals = std::vector<double>;
using Integers = std::vector<int64_t>;

template <class S>
reference::Tensor run(const OpDef& op, S attrs, const std::vector<Array>& operands) {
  std::vector<reference::Tensor> wide;
  wide.reserve(operands.size());
  for (const Array& a : operands) wide.push_back(reference::widen(a));
  return reference::evaluate(op, Attrs::of(op.fields, std::move(attrs)), wide)[0];
}

// 0, 1, 2, ... in a shape, like numpy.arange(...).reshape(...).
Array counting(Dims shape) {
  std::vector<double> values(static_cast<size_t>(num_elements(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = double(i);
  return Array::from(std::span<const double>(values), std::move(shape));
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "no error";
}

template <class S>
Shape inferred(const OpDef& op, S attrs, std::vector<TensorType> operands) {
  return infer_call(op, Attrs::of(op.fields, std::move(attrs)), operands).results[0].shape;
}

// The first CPU kernel that fits, on one thread.
template <class S>
Array run_cpu(const OpDef& op, const KernelList& kernels, S attrs,
              const std::vector<Array>& operands) {
  std::vector<TensorType> types;
  std::vector<TensorDesc> views;
  std::vector<void*> data;
  for (const Array& a : operands) {
    types.push_back(a.type());
    views.push_back({a.dtype(), a.shape(), a.strides()});
    data.push_back(const_cast<void*>(a.raw()));
  }
  const InferredCall call = infer_call(op, Attrs::of(op.fields, std::move(attrs)), types);
  const TensorDesc result = TensorDesc::dense(call.results[0]);
  Array y = Array::zeros(result.dtype, result.dims);
  void* out = y.mutable_raw();
  const KernelCall kernel_call{op, call.attrs, views, {&result, 1}, {}, {}};
  for (const KernelEntry& entry : kernels.entries) {
    if (!entry.fits(kernel_call).empty()) continue;
    const PreparedKernel k = entry.prepare(kernel_call);
    const auto scratch = allocate_aligned(k.scratch_bytes);
    const auto own = allocate_aligned(k.thread_scratch_bytes);
    const StepArgs args{data.data(), &out, scratch.get(), own.get()};
    for (const Phase& p : k.phases) {
      for (int64_t c = 0; c < p.chunks; ++c) p.run(k.state.get(), args, c);
    }
    return y;
  }
  internal_error("no kernel fits");
}

// --- Products

// The example of numpy.tensordot's manual: axes=([1, 0], [0, 1]).
TEST(DotGeneral, TensordotOfTheNumpyManual) {
  const auto y = run(kDotGeneralOp, DotGeneralAttrs{{1, 0}, {0, 1}, {}, {}},
                     {counting({3, 4, 5}), counting({4, 3, 2})});
  EXPECT_EQ(y.shape, (Dims{5, 2}));
  EXPECT_EQ(y.f, (Reals{4400, 4730, 4532, 4874, 4664, 5018, 4796, 5162, 4928, 5306}));
}

// The examples of numpy.matmul's manual.
TEST(MatMul, NumpyManual) {
  const auto batch = run(kMatMulOp, NoAttrs{}, {counting({2, 2, 4}), counting({2, 4, 2})});
  EXPECT_EQ(batch.shape, (Dims{2, 2, 2}));
  EXPECT_EQ(batch.f[3], 98);
  const Array identity = Array::from<double>({1, 0, 0, 1}, {2, 2});
  const Array vector = Array::from<double>({1, 2}, {2});
  EXPECT_EQ(run(kMatMulOp, NoAttrs{}, {identity, vector}).f, (Reals{1, 2}));
  EXPECT_EQ(run(kMatMulOp, NoAttrs{}, {vector, identity}).f, (Reals{1, 2}));
  using C = std::complex<double>;
  const Array imaginary = Array::from<C>({C(0, 2), C(0, 3)}, {2});
  const auto dot = run(kMatMulOp, NoAttrs{}, {imaginary, imaginary});
  EXPECT_EQ(dot.shape, Dims{});
  EXPECT_EQ(dot.c[0], C(-13, 0));
}

TEST(MatMul, IntegersWrap) {
  const Array x = Array::from<int8_t>({100, 100}, {2});
  EXPECT_EQ(run(kMatMulOp, NoAttrs{}, {x, x}).i[0], int8_t(20000 & 255));
  const Array u = Array::from<uint64_t>({~uint64_t{0}, 2}, {2});
  EXPECT_EQ(uint64_t(run(kMatMulOp, NoAttrs{}, {u, u}).i[0]), uint64_t{5});
}

TEST(MatMul, EmptySumIsZero) {
  const auto y = run(kMatMulOp, NoAttrs{}, {counting({2, 0}), counting({0, 3})});
  EXPECT_EQ(y.f, Reals(6, 0));
}

TEST(MatMul, SymbolicBatch) {
  const Dim n = Dim::symbol("n");
  const DType t = DType::kF32;
  EXPECT_EQ(inferred(kMatMulOp, NoAttrs{}, {{t, {n, 3, 4}}, {t, {4, 5}}}), (Shape{n, 3, 5}));
  EXPECT_EQ(inferred(kMatMulOp, NoAttrs{}, {{t, {n}}, {t, {n, 2}}}), (Shape{2}));
}

// Whatever operands are batched and of whatever ranks: one MatMul, and no operand is repeated.
TEST(MatMul, BatchingKeepsOneMatMul) {
  const Shape lefts[] = {{4}, {3, 4}, {2, 3, 4}}, rights[] = {{4}, {4, 5}, {2, 4, 5}};
  for (const Shape& left : lefts) {
    for (const Shape& right : rights) {
      for (const std::vector<uint8_t>& batched : {std::vector<uint8_t>{1, 0}, {0, 1}, {1, 1}}) {
        Graph g;
        Builder b(g);
        Shape x_shape = left, y_shape = right;
        Shape expected =
            inferred(kMatMulOp, NoAttrs{}, {{DType::kF32, left}, {DType::kF32, right}});
        expected.insert(0, 7);
        if (batched[0]) x_shape.insert(0, 7);
        if (batched[1]) y_shape.insert(0, 7);
        const Value operands[] = {input(b, "x", DType::kF32, x_shape),
                                  input(b, "y", DType::kF32, y_shape)};
        const Attrs attrs = Attrs::of(kMatMulOp.fields, NoAttrs{});
        const Value y = kMatMulOp.batching(b, {kMatMulOp, attrs, operands, {}}, batched, 7)[0];
        EXPECT_EQ(b.shape(y), expected) << left.to_string() << " by " << right.to_string();
        int products = 0;
        for (const Node& n : g.nodes()) {
          products += n.op == &kMatMulOp;
          EXPECT_NE(n.op, &kExpandOp);
        }
        EXPECT_EQ(products, 1);
      }
    }
  }
}

// --- Gather

// The examples of numpy.take's manual, and a negative index.
TEST(Gather, TakeOfTheNumpyManual) {
  const Array a = Array::from<double>({4, 3, 5, 7, 6, 8}, {6});
  const Array indices = Array::from<int64_t>({0, 1, 4}, {3});
  EXPECT_EQ(run(kGatherOp, GatherAttrs{}, {a, indices}).f, (Reals{4, 3, 6}));
  const auto matrix =
      run(kGatherOp, GatherAttrs{}, {a, Array::from<int64_t>({0, 1, 2, 3}, {2, 2})});
  EXPECT_EQ(matrix.shape, (Dims{2, 2}));
  EXPECT_EQ(matrix.f, (Reals{4, 3, 5, 7}));
  EXPECT_EQ(run(kGatherOp, GatherAttrs{}, {a, Array::from<int8_t>({-1, -6}, {2})}).f,
            (Reals{8, 4}));
}

TEST(Gather, MiddleAxisAndBatch) {
  const auto middle =
      run(kGatherOp, GatherAttrs{1, 0}, {counting({2, 3, 2}), Array::from<int32_t>({2, 0}, {2})});
  EXPECT_EQ(middle.shape, (Dims{2, 2, 2}));
  EXPECT_EQ(middle.f, (Reals{4, 5, 0, 1, 10, 11, 6, 7}));
  const auto batch =
      run(kGatherOp, GatherAttrs{1, 1}, {counting({2, 3}), Array::from<int32_t>({2, 0}, {2, 1})});
  EXPECT_EQ(batch.f, (Reals{2, 3}));
}

TEST(Gather, IndexOutOfRangeNamesIndexAndSize) {
  const Array table = counting({3, 2});
  const auto message = [&](Array index) {
    return error_of([&] { run(kGatherOp, GatherAttrs{}, {table, index}); });
  };
  EXPECT_NE(message(Array::scalar<int64_t>(3)).find("index 3 is out of range for axis size 3"),
            std::string::npos);
  EXPECT_NE(message(Array::scalar<int64_t>(-4)).find("index -4 is out of range for axis size 3"),
            std::string::npos);
  EXPECT_NE(message(Array::scalar<uint64_t>(~uint64_t{0}))
                .find("index 18446744073709551615 is out of range"),
            std::string::npos);
  const GatherBackwardAttrs attrs{0, 0, {3, 2}};
  const std::string backward = error_of([&] {
    run(kGatherBackwardOp, attrs, {counting({2}), Array::scalar<int64_t>(7)});
  });
  EXPECT_NE(backward.find("index 7 is out of range for axis size 3"), std::string::npos);
}

TEST(Gather, CpuKernelsCheckIndices) {
  for (const int64_t bad : {int64_t{3}, int64_t{-4}}) {
    const Array indices = Array::from<int64_t>({0, bad}, {2});
    const std::string expected = fmt::format("index {} is out of range for axis size 3", bad);
    EXPECT_EQ(
        error_of([&] {
          run_cpu(kGatherOp, cpu::kGatherCpuKernels, GatherAttrs{}, {counting({3, 2}), indices});
        }),
        expected);
    EXPECT_EQ(error_of([&] {
                run_cpu(kGatherBackwardOp, cpu::kGatherBackwardCpuKernels,
                        GatherBackwardAttrs{0, 0, {3, 2}}, {counting({2, 2}), indices});
              }),
              expected);
  }
}

TEST(GatherBackward, EqualIndicesAddUp) {
  const auto y =
      run(kGatherBackwardOp, GatherBackwardAttrs{0, 0, {3}},
          {Array::from<double>({1, 10, 100}, {3}), Array::from<int64_t>({2, 0, -1}, {3})});
  EXPECT_EQ(y.f, (Reals{10, 0, 101}));
}

// --- Reduce

TEST(Reduce, EmptySums) {
  const auto over_nothing = [](ReduceKind kind, DType t) {
    return run(kReduceOp, ReduceAttrs{kind, {0}}, {Array::zeros(t, {0})});
  };
  EXPECT_EQ(over_nothing(ReduceKind::kSum, DType::kF32).f[0], 0);
  EXPECT_EQ(over_nothing(ReduceKind::kProd, DType::kF32).f[0], 1);
  EXPECT_TRUE(std::isnan(over_nothing(ReduceKind::kMean, DType::kF32).f[0]));
  EXPECT_EQ(over_nothing(ReduceKind::kMax, DType::kF32).f[0], -kInf);
  EXPECT_EQ(over_nothing(ReduceKind::kMin, DType::kF32).f[0], kInf);
  EXPECT_EQ(over_nothing(ReduceKind::kMax, DType::kI8).i[0], -128);
  EXPECT_EQ(over_nothing(ReduceKind::kMin, DType::kI8).i[0], 127);
  EXPECT_EQ(uint64_t(over_nothing(ReduceKind::kMin, DType::kU64).i[0]), ~uint64_t{0});
  EXPECT_EQ(over_nothing(ReduceKind::kAnd, DType::kBool).i[0], 1);
  EXPECT_EQ(over_nothing(ReduceKind::kOr, DType::kBool).i[0], 0);
}

TEST(Reduce, NaNStays) {
  const Array x = Array::from<double>({1, kNaN, 3, -kInf, 2, 5}, {2, 3});
  for (const ReduceKind kind : {ReduceKind::kMax, ReduceKind::kMin}) {
    const auto y = run(kReduceOp, ReduceAttrs{kind, {1}}, {x});
    EXPECT_TRUE(std::isnan(y.f[0]));
    EXPECT_EQ(y.f[1], kind == ReduceKind::kMax ? 5 : -kInf);
  }
}

TEST(Reduce, IntegersWrapAndUnsignedCompareUnsigned) {
  const Array x = Array::from<int8_t>({100, 100, -3}, {3});
  EXPECT_EQ(run(kReduceOp, ReduceAttrs{ReduceKind::kSum, {0}}, {x}).i[0], -59);
  EXPECT_EQ(run(kReduceOp, ReduceAttrs{ReduceKind::kProd, {0}}, {x}).i[0], int8_t(-30000));
  const Array u = Array::from<uint64_t>({1, ~uint64_t{0}, 7}, {3});
  EXPECT_EQ(uint64_t(run(kReduceOp, ReduceAttrs{ReduceKind::kMax, {0}}, {u}).i[0]), ~uint64_t{0});
  EXPECT_EQ(run(kReduceOp, ReduceAttrs{ReduceKind::kMin, {0}}, {u}).i[0], 1);
}

TEST(Reduce, AxesInAnyOrderAndKept) {
  const auto y =
      run(kReduceOp, ReduceAttrs{ReduceKind::kSum, {-1, 0}, true}, {counting({2, 3, 4})});
  EXPECT_EQ(y.shape, (Dims{1, 3, 1}));
  EXPECT_EQ(y.f, (Reals{60, 92, 124}));
  EXPECT_EQ(run(kReduceOp, ReduceAttrs{ReduceKind::kSum, {}}, {counting({2})}).f, (Reals{0, 1}));
}

// The bits of a sum depend on its elements only: not on where they lie, nor on what else is summed.
TEST(Reduce, RowsColumnsAndStridesGiveTheSameBits) {
  for (const int64_t n : {5, 64, 1000, 40000}) {
    std::vector<float> values(static_cast<size_t>(n));
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(float(i)) * 100;
    const auto sum = [&](const Array& x, std::vector<int64_t> axes) {
      const Array y = run_cpu(kReduceOp, cpu::kReduceCpuKernels,
                              ReduceAttrs{ReduceKind::kSum, std::move(axes)}, {x});
      const std::span<const float> sums = y.data<float>();
      return std::vector<float>(sums.begin(), sums.end());
    };
    const Array line = Array::from(std::span<const float>(values), {n});
    const float expected = sum(line, {0})[0];
    // The same numbers in seven columns, and as views of them.
    Array columns = Array::zeros(DType::kF32, {n, 7});
    for (int64_t i = 0; i < n * 7; ++i) {
      columns.mutable_data<float>()[size_t(i)] = values[size_t(i / 7)];
    }
    for (const float v : sum(columns, {0})) EXPECT_EQ(v, expected) << n;
    const Array turned = Array::borrow(DType::kF32, columns.mutable_raw(), {7, n}, {1, 7});
    for (const float v : sum(turned, {1})) EXPECT_EQ(v, expected) << n;
    const Array one = Array::borrow(DType::kF32, columns.mutable_raw(), {n}, {7});
    EXPECT_EQ(sum(one, {0})[0], expected) << n;
    if (n % 5 != 0) continue;
    // Reduced axes on both sides of a kept one.
    Array split = Array::zeros(DType::kF32, {n / 5, 3, 5});
    for (int64_t i = 0; i < n * 3; ++i) {
      split.mutable_data<float>()[size_t(i)] = values[size_t(i / 15 * 5 + i % 5)];
    }
    for (const float v : sum(split, {0, 2})) EXPECT_EQ(v, expected) << n;
  }
}

// --- Shapes

TEST(Shapes, SymbolicSizes) {
  const Dim n = Dim::symbol("n"), m = Dim::symbol("m");
  const DType t = DType::kF32;
  EXPECT_EQ(inferred(kReshapeOp, ReshapeAttrs{{-1}}, {{t, {n, 4}}}), (Shape{n * 4}));
  EXPECT_EQ(inferred(kReshapeOp, ReshapeAttrs{{-1, 2}}, {{t, {n, 4}}}), (Shape{n * 2, 2}));
  EXPECT_EQ(inferred(kReshapeOp, ReshapeAttrs{{m, -1}}, {{t, {n, m}}}), (Shape{m, n}));
  EXPECT_EQ(inferred(kConcatOp, ConcatAttrs{0}, {{t, {n, 2}}, {t, {3, 2}}}), (Shape{n + 3, 2}));
  EXPECT_EQ(inferred(kNarrowOp, NarrowAttrs{0, 1, n - 1}, {{t, {n}}}), (Shape{n - 1}));
  EXPECT_EQ(inferred(kExpandOp, ExpandAttrs{{m, -1}}, {{t, {n}}}), (Shape{m, n}));
  EXPECT_NE(error_of([&] {
              inferred(kReshapeOp, ReshapeAttrs{{-1, 3}}, {{t, {n, 4}}});
            }).find("the -1 of the shape [-1, 3] has no size"),
            std::string::npos);
}

TEST(Shapes, ReshapeOfEmpty) {
  EXPECT_EQ(inferred(kReshapeOp, ReshapeAttrs{{-1, 2}}, {{DType::kF32, {0, 4}}}), (Shape{0, 2}));
}

TEST(Shapes, BuildersSkipWhatChangesNothing) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", DType::kF32, {2, 3});
  EXPECT_EQ(reshape(b, x, {2, 3}), x);
  EXPECT_EQ(transpose(b, x, {0, 1}), x);
  EXPECT_EQ(expand(b, x, {2, 3}), x);
  EXPECT_EQ(narrow(b, x, 1, 0, 3), x);
  EXPECT_EQ(pad_axis(b, x, 0, 0, 0, 1), x);
  EXPECT_EQ(b.shape(move_axis(b, x, 0, -1)), (Shape{3, 2}));
  EXPECT_EQ(b.shape(squeeze(b, unsqueeze(b, x, -1), 2)), (Shape{2, 3}));
}

// --- Random numbers

// Random123's known answer for counter 0, key 0: 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
TEST(Rng, UniformsAreTheBitsOfPhilox) {
  const auto f32 = run(kRngUniformOp, RngUniformAttrs{DType::kF32, {4}}, {});
  EXPECT_EQ(f32.f, (Reals{0x6627e8 * 0x1p-24, 0xe169c5 * 0x1p-24, 0xbc57ac * 0x1p-24,
                          0x9b00db * 0x1p-24}));
  const auto f16 = run(kRngUniformOp, RngUniformAttrs{DType::kF16, {2}}, {});
  EXPECT_EQ(f16.f, (Reals{(0x6627e8d5u >> 21) * 0x1p-11, (0xe169c58du >> 21) * 0x1p-11}));
  const auto bf16 = run(kRngUniformOp, RngUniformAttrs{DType::kBF16, {2}}, {});
  EXPECT_EQ(bf16.f, (Reals{0x66 * 0x1p-8, 0xe1 * 0x1p-8}));
  const auto f64 = run(kRngUniformOp, RngUniformAttrs{DType::kF64, {2}}, {});
  EXPECT_EQ(f64.f, (Reals{double(0xe169c58d6627e8d5u >> 11) * 0x1p-53,
                          double(0x9b00dbd8bc57ac4cu >> 11) * 0x1p-53}));
}

TEST(Rng, NormalsAreBoxMuller) {
  const auto z = run(kRngNormalOp, RngNormalAttrs{DType::kF32, {2}, 1, 2}, {});
  const double u1 = (0x6627e8 + 1) * 0x1p-24, u2 = 0xe169c5 * 0x1p-24;
  const double radius = std::sqrt(-2 * std::log(u1));
  EXPECT_NEAR(z.f[0], 1 + 2 * radius * std::cos(2 * M_PI * u2), 1e-14);
  EXPECT_NEAR(z.f[1], 1 + 2 * radius * std::sin(2 * M_PI * u2), 1e-14);
}

TEST(Rng, SeedsAddLeadingAxes) {
  const RngUniformAttrs attrs{DType::kF32, {3}, 0, 1, 9};
  const auto both = run(kRngUniformOp, attrs, {Array::from<uint64_t>({5, 0}, {2})});
  EXPECT_EQ(both.shape, (Dims{2, 3}));
  const auto first = run(kRngUniformOp, attrs, {Array::scalar<uint64_t>(5)});
  const auto unseeded = run(kRngUniformOp, attrs, {});
  EXPECT_EQ(Reals(both.f.begin(), both.f.begin() + 3), first.f);
  EXPECT_EQ(Reals(both.f.begin() + 3, both.f.end()), unseeded.f);
  EXPECT_NE(first.f, unseeded.f);
}

TEST(Rng, HighIsNeverReached) {
  // bf16 between 1 and 1 + 2^-7 holds only 1: all values that round up must come back down.
  const auto y = run(kRngUniformOp, RngUniformAttrs{DType::kBF16, {256}, 1, 1.0078125}, {});
  for (const double v : y.f) EXPECT_EQ(v, 1);
}

}  // namespace
}  // namespace rlx
