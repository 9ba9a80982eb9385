// Planning: views, copies, concat slots, memory shared in place, order and barriers; and that none
// of it changes a result.
#include "rlx/compile/plan.h"

#include <gtest/gtest.h>

#include "rlx/compile/view.h"
#include "rlx/ops/build.h"
#include "rlx/ops/layer_norm.h"
#include "tests/unit/plan_check.h"

namespace rlx {
namespace {

using namespace plan_check;
constexpr DType kF32 = DType::kF32;

TEST(View, ReshapeKeepsStridesWhereItCan) {
  const auto strides = [](Dims dims, Dims strides, Dims to) {
    return reshape_strides(dims, strides, to);
  };
  EXPECT_EQ(strides({2, 3}, {3, 1}, {6}), (Dims{1}));
  EXPECT_EQ(strides({2, 3}, {1, 2}, {6}), std::nullopt);
  EXPECT_EQ(strides({2, 3}, {1, 2}, {2, 1, 3}), (Dims{1, 6, 2}));
  EXPECT_EQ(strides({4, 3}, {10, 1}, {2, 2, 3}), (Dims{20, 10, 1}));
  EXPECT_EQ(strides({4, 3}, {10, 1}, {2, 6}), std::nullopt);
  EXPECT_EQ(strides({5}, {0}, {5, 1}), (Dims{0, 1}));
  EXPECT_EQ(strides({2, 6}, {0, 1}, {2, 2, 3}), (Dims{0, 3, 1}));
  EXPECT_EQ(strides({1, 1}, {7, 9}, {}), (Dims{}));
  EXPECT_EQ(strides({0, 3}, {9, 2}, {3, 0, 2}), dense_strides(Dims{3, 0, 2}));
}

TEST(View, FormsAcceptStrides) {
  const TensorDesc dense = TensorDesc::dense(kF32, {2, 3});
  const TensorDesc rows{kF32, {2, 3}, {8, 1}}, columns{kF32, {2, 3}, {1, 2}};
  const TensorDesc one{kF32, {2, 1}, {8, 5}}, empty{kF32, {0, 3}, {1, 2}};
  for (const TensorDesc& d : {dense, rows, columns, one, empty}) {
    EXPECT_TRUE(accepts(StrideForm::kAny, d));
  }
  EXPECT_TRUE(accepts(StrideForm::kRows, rows));
  EXPECT_TRUE(accepts(StrideForm::kRows, one));
  EXPECT_FALSE(accepts(StrideForm::kRows, columns));
  EXPECT_FALSE(accepts(StrideForm::kDense, rows));
  EXPECT_TRUE(accepts(StrideForm::kDense, empty));
}

TEST(Plan, ViewsReadTheirOperandsMemory) {
  Graph g("views");
  Builder b(g);
  const Value x = input(b, "x", kF32, {4, 3});
  const Value part = narrow(b, transpose(b, x, {1, 0}), 1, 1, 2);  // [3, 2]
  const Value row = expand(b, narrow(b, reshape(b, x, {12}), 0, 10, 2), {3, 2});
  g.add_output("y", add(b, part, row));
  EXPECT_EQ(to_string(*plan_of(g)), R"(plan views
  input x f32[4, 3]
  output y f32[3, 2]
  arena 0 bytes, 0 alive at most
  layout Narrow 2 f32[3, 2]{1, 3}: 1 strided reads cost 6 ns, one copy 12 ns: read in place
  layout Expand 5 f32[3, 2]{0, 1}: 1 strided reads cost 6 ns, one copy 12 ns: read in place
  serial
    0: y f32[3, 2] = binary(x+12 f32[3, 2]{1, 3}, x+40 f32[3, 2]{0, 1})
)");
  const Outcome out = run_all_ways(g, {numbers({4, 3})});
  EXPECT_EQ(values(out.outputs[0]), (std::vector<float>{15, 19, 16, 20, 17, 21}));
}

TEST(Plan, ReshapeThatNeedsACopyMakesOneForAllItsUsers) {
  Graph g;
  Builder b(g);
  const Value t = transpose(b, input(b, "x", kF32, {2, 3}), {1, 0});
  g.add_output("y", reshape(b, t, {6}));
  g.add_output("z", neg(b, t));
  const auto plan = plan_of(g);
  // One copy of the transpose for both, made in the memory of y.
  EXPECT_EQ(plan->counts.copies, 1) << to_string(*plan);
  const Outcome out = run_all_ways(g, {numbers({2, 3})});
  EXPECT_EQ(values(out.outputs[0]), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(values(out.outputs[1]), (std::vector<float>{-1, -4, -2, -5, -3, -6}));
}

// x transposed, read by `consumers` kernels that take strides at a cost.
Graph transposed_reads(int64_t rows, int64_t columns, int consumers) {
  Graph g("reads");
  Builder b(g);
  const Value t = transpose(b, input(b, "x", kF32, {columns, rows}), {1, 0});
  const Value y = input(b, "y", kF32, {rows, columns});
  for (int i = 0; i < consumers; ++i) {
    g.add_output(fmt::format("z{}", i), b.op(kBinaryOp, BinaryAttrs{BinaryKind(i)}, {t, y}));
  }
  return g;
}

TEST(Plan, LayoutFollowsCostByConsumersAndByShape) {
  // A copy costs 2 ns an element, a strided read 1 ns, in rows of 16 and more 3 ns.
  EXPECT_EQ(plan_of(transposed_reads(4, 3, 1))->counts.copies, 0);
  EXPECT_EQ(plan_of(transposed_reads(4, 3, 2))->counts.copies, 0);
  EXPECT_EQ(plan_of(transposed_reads(4, 3, 3))->counts.copies, 1);
  EXPECT_EQ(plan_of(transposed_reads(4, 15, 1))->counts.copies, 0);
  EXPECT_EQ(plan_of(transposed_reads(4, 16, 1))->counts.copies, 1);
  CompileOptions never, always;
  never.layout = LayoutPolicy::kNeverCopy;
  always.layout = LayoutPolicy::kAlwaysCopy;
  EXPECT_EQ(plan_of(transposed_reads(4, 16, 3), never)->counts.copies, 0);
  EXPECT_EQ(plan_of(transposed_reads(4, 3, 1), always)->counts.copies, 1);
  EXPECT_EQ(to_string(*plan_of(transposed_reads(2, 3, 3))), R"(plan reads
  input x f32[3, 2]
  input y f32[2, 3]
  output z0 f32[2, 3]
  output z1 f32[2, 3]
  output z2 f32[2, 3]
  arena 64 bytes, 64 alive at most
  layout Transpose 1 f32[2, 3]{1, 2}: 3 strided reads cost 18 ns, one copy 12 ns: copied
  serial
    0: arena+0 f32[2, 3] = copy(x f32[2, 3]{1, 2})
    1: z0 f32[2, 3] = binary(arena+0 f32[2, 3], y f32[2, 3])
    2: z1 f32[2, 3] = binary(arena+0 f32[2, 3], y f32[2, 3])
    3: z2 f32[2, 3] = binary(arena+0 f32[2, 3], y f32[2, 3])
)");
  run_all_ways(transposed_reads(5, 17, 3), {numbers({17, 5}), numbers({5, 17})});
}

TEST(Plan, KernelsThatRefuseStridesForceACopy) {
  Graph g;
  Builder b(g);
  const Value t = transpose(b, input(b, "x", kF32, {2, 3}), {1, 0});
  g.add_output("y", matmul(b, t, input(b, "w", kF32, {2, 2})));
  CompileOptions never;
  never.layout = LayoutPolicy::kNeverCopy;
  EXPECT_EQ(plan_of(g, never)->counts.copies, 1);
  const Outcome out = run_all_ways(g, {numbers({2, 3}), numbers({2, 2})});
  EXPECT_EQ(values(out.outputs[0]), (std::vector<float>{13, 18, 17, 24, 21, 30}));
}

TEST(Plan, ViewsOfConstantsAreLaidOutWhileCompiling) {
  Graph g;
  Builder b(g);
  const Value c = transpose(b, constant(b, numbers({2, 3})), {1, 0});
  const Value s = splat(b, kF32, {3, 2}, 2);
  g.add_output("y", neg(b, mul(b, c, s)));
  g.add_output("z", neg(b, add(b, input(b, "x", kF32, {3, 2}), splat(b, kF32, {3, 2}, 1))));
  CompileOptions options;
  options.optimize = false;  // else everything is folded
  const auto plan = plan_of(g, options);
  EXPECT_EQ(plan->counts.copies, 0) << to_string(*plan);
  const Outcome out = run_all_ways(g, {numbers({3, 2})});
  EXPECT_EQ(values(out.outputs[0]), (std::vector<float>{-2, -8, -4, -10, -6, -12}));
  EXPECT_EQ(values(out.outputs[1]), (std::vector<float>{-2, -3, -4, -5, -6, -7}));
}

TEST(Plan, ProducersWriteIntoTheirConcatSlots) {
  Graph g("slots");
  Builder b(g);
  const Value x = input(b, "x", kF32, {2, 2});
  const Value y = input(b, "y", kF32, {2, 1});
  const std::vector<Value> parts{add(b, x, x), mul(b, y, y)};
  g.add_output("z", concat(b, parts, 1));
  EXPECT_EQ(to_string(*plan_of(g)), R"(plan slots
  input x f32[2, 2]
  input y f32[2, 1]
  output z f32[2, 3]
  arena 0 bytes, 0 alive at most
  serial
    0: z f32[2, 2]{3, 1} = binary(x f32[2, 2], x f32[2, 2])
    1: z+8 f32[2, 1]{3, 1} = binary(y f32[2, 1], y f32[2, 1])
)");
  const Outcome out = run_all_ways(g, {numbers({2, 2}), numbers({2, 1}, 5)});
  EXPECT_EQ(values(out.outputs[0]), (std::vector<float>{2, 4, 25, 6, 8, 36}));
}

TEST(Plan, ConcatPartsThatAreNotWholeResultsAreCopied) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {2, 2});
  const Value twice = add(b, x, x), shared = mul(b, x, x);
  const std::vector<Value> inner{twice, shared, transpose(b, x, {1, 0})};
  const std::vector<Value> outer{neg(b, x), concat(b, inner, 1), input(b, "e", kF32, {2, 0})};
  g.add_output("y", concat(b, outer, 1));
  g.add_output("s", shared);
  const Outcome out = run_all_ways(g, {numbers({2, 2}), numbers({2, 0})});
  EXPECT_EQ(values(out.outputs[0]), (std::vector<float>{-1, -2, 2, 4, 1, 4, 1, 3,  //
                                                        -3, -4, 6, 8, 9, 16, 2, 4}));
  EXPECT_EQ(values(out.outputs[1]), (std::vector<float>{1, 4, 9, 16}));
  // `twice` goes through two Concats, and so does the copy that turns x; the inner Concat itself is
  // a producer too. neg writes dense only, `shared` is an output: these are copied.
  const auto plan = plan_of(g);
  EXPECT_EQ(plan->counts.copies, 3) << to_string(*plan);
  EXPECT_EQ(plan->counts.concat_slots, 3) << to_string(*plan);
  for (const PlanStep& s : plan->steps) EXPECT_NE(s.entry->name, "concat");
}

TEST(Plan, ConcatWithoutProducersKeepsItsKernel) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {2, 2});
  const std::vector<Value> parts{x, x};
  g.add_output("y", concat(b, parts, 0));
  const auto plan = plan_of(g);
  ASSERT_EQ(plan->steps.size(), 1u);
  EXPECT_EQ(plan->steps[0].entry->name, "concat");
}

TEST(Plan, ResultsTakeOverTheMemoryOfDeadOperands) {
  Graph g("chain");
  Builder b(g);
  const Value x = input(b, "x", kF32, {4});
  Value v = add(b, x, x);
  const Value kept = v;
  for (int i = 0; i < 3; ++i) v = neg(b, mul(b, v, x));
  g.add_output("y", add(b, v, kept));
  EXPECT_EQ(to_string(*plan_of(g)), R"(plan chain
  input x f32[4]
  output y f32[4]
  arena 128 bytes, 128 alive at most
  serial
    0: arena+0 f32[4] = binary(x f32[4], x f32[4])
    1: arena+64 f32[4] = binary(arena+0 f32[4], x f32[4])
    2: arena+64 f32[4] = neg(arena+64 f32[4])
    3: arena+64 f32[4] = binary(arena+64 f32[4], x f32[4])
    4: arena+64 f32[4] = neg(arena+64 f32[4])
    5: arena+64 f32[4] = binary(arena+64 f32[4], x f32[4])
    6: arena+64 f32[4] = neg(arena+64 f32[4])
    7: y f32[4] = binary(arena+64 f32[4], arena+0 f32[4])
)");
  run_all_ways(g, {numbers({4})});
}

TEST(Plan, NoSharingInPlaceUnderAnotherViewOfTheSameMemory) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {64, 64});
  const Value a = add(b, x, x);
  const Value c = add(b, a, transpose(b, a, {1, 0}));  // reads a in two orders
  g.add_output("y", neg(b, c));
  CompileOptions never;
  never.layout = LayoutPolicy::kNeverCopy;
  const auto plan = plan_of(g, never);
  ASSERT_EQ(plan->steps.size(), 3u) << to_string(*plan);
  EXPECT_NE(plan->steps[1].results[0].offset, plan->steps[1].operands[0].offset);
  run_all_ways(g, {numbers({64, 64})});
  // The same memory twice in the same order is fine.
  Graph h;
  Builder c2(h);
  const Value d = add(c2, input(c2, "x", kF32, {4}), 1);
  h.add_output("y", neg(c2, mul(c2, d, d)));
  EXPECT_EQ(plan_of(h)->arena_bytes, 64);
}

TEST(Plan, ResultsThatNobodyReadsHaveNoMemory) {
  Graph g("three");
  Builder b(g);
  const Value x = input(b, "x", kF32, {5, 3});
  g.add_output("y", neg(b, layer_norm_backward(b, x, {}, x, {})[1]));
  EXPECT_EQ(to_string(*plan_of(g)), R"(plan three
  input x f32[5, 3]
  output y f32[3]
  arena 64 bytes, 64 alive at most
  serial
    0: unused f32[5, 3], arena+0 f32[3], unused f32[3] = three(x f32[5, 3], x f32[5, 3])
    1: y f32[3] = neg(arena+0 f32[3])
)");
  EXPECT_EQ(values(run_all_ways(g, {numbers({5, 3})}).outputs[0]),
            (std::vector<float>{-2, -2, -2}));
}

TEST(Plan, OutputsThatAliasAreCopied) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {2, 2});
  const Value w = param(b, "w", kF32, {2, 2});
  const Value s = add(b, x, w);
  g.add_output("s", s);
  g.add_output("again", s);
  g.add_output("transposed", transpose(b, s, {1, 0}));
  g.add_output("input", x);
  g.add_output("param", w);
  g.add_output("number", splat(b, kF32, {2}, 3));
  EXPECT_EQ(plan_of(g)->counts.copies, 5);
  const Outcome out = run_all_ways(g, {numbers({2, 2})}, {{"w", numbers({2, 2}, 10)}});
  const std::vector<float> sum{11, 13, 15, 17};
  EXPECT_EQ(values(out.outputs[0]), sum);
  EXPECT_EQ(values(out.outputs[1]), sum);
  EXPECT_EQ(values(out.outputs[2]), (std::vector<float>{11, 15, 13, 17}));
  EXPECT_EQ(values(out.outputs[3]), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(values(out.outputs[4]), (std::vector<float>{10, 11, 12, 13}));
  EXPECT_EQ(values(out.outputs[5]), (std::vector<float>{3, 3}));
}

TEST(Plan, OrderKeepsFewBytesAlive) {
  // All big values first, then the small ones made of them: depth-first needs one at a time.
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {1024, 8});
  std::vector<Value> big;
  big.reserve(8);
  for (int i = 0; i < 8; ++i) big.push_back(mul(b, x, i + 1.5));
  Value sum = input(b, "zero", kF32, {1, 8});
  for (const Value v : big) sum = add(b, sum, narrow(b, v, 0, 0, 1));
  g.add_output("y", sum);
  const auto plan = plan_of(g);
  EXPECT_LT(plan->counts.live_bytes, 2 * 1024 * 8 * 4) << to_string(*plan);
  EXPECT_EQ(plan->arena_bytes, plan->counts.live_bytes);
}

TEST(Plan, SmallDependentStepsShareASegment) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {64, 64});
  const Value big = neg(b, add(b, x, x));  // 4096 ns each: shared
  const Value small = narrow(b, big, 0, 0, 1);
  g.add_output("y", neg(b, neg(b, neg(b, small))));
  CompileOptions options;
  options.optimize = false;
  const auto plan = plan_of(g, options);
  ASSERT_EQ(plan->segments.size(), 3u) << to_string(*plan);
  EXPECT_FALSE(plan->segments[0].serial);
  EXPECT_FALSE(plan->segments[0].barrier_before);
  EXPECT_TRUE(plan->segments[1].barrier_before);
  EXPECT_TRUE(plan->segments[2].serial);
  EXPECT_TRUE(plan->segments[2].barrier_before);
  EXPECT_EQ(plan->segments[2].end - plan->segments[2].begin, 3u);
}

TEST(Plan, GuardZonesCatchAKernelThatWritesTooFar) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {16});
  b.set_label("layer1");
  g.add_output("y", neg(b, activation(b, ActivationKind::kSign, x)));
  CompileOptions options;
  options.guard_zones = true;
  try {
    run_once(g, {numbers({16})}, {}, 1, options);
    FAIL() << "not noticed";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInternal);
    EXPECT_NE(e.message().find("Activation at layer1"), std::string::npos) << e.message();
    EXPECT_NE(e.message().find("outside its memory"), std::string::npos) << e.message();
  }
}

TEST(Plan, MemoryLimit) {
  Graph g;
  Builder b(g);
  g.add_output("y", neg(b, activation(b, ActivationKind::kExp, input(b, "x", kF32, {1024}))));
  CompileOptions options;
  options.memory_limit = 8192;  // the value and scratch
  EXPECT_EQ(plan_of(g, options)->estimate().arena, 8192);
  options.memory_limit = 8191;
  EXPECT_THROW(
      {
        try {
          plan_of(g, options);
        } catch (const Error& e) {
          EXPECT_EQ(e.kind(), ErrorKind::kDevice);
          throw;
        }
      },
      Error);
}

TEST(Plan, EmptyTensors) {
  Graph g;
  Builder b(g);
  const Value x = input(b, "x", kF32, {0, 3});
  const Value w = param(b, "w", kF32, {0, 3}, true);
  const Value y = activation(b, ActivationKind::kExp, neg(b, transpose(b, add(b, x, w), {1, 0})));
  g.add_output("y", y);
  g.add_output("x", x);
  g.add_output("m", matmul(b, y, input(b, "z", kF32, {0, 2})));  // sums over nothing
  g.add_update("w", mul(b, w, x));
  const Outcome out = run_all_ways(g, {numbers({0, 3}), numbers({0, 2})}, {{"w", numbers({0, 3})}});
  EXPECT_EQ(out.outputs[0].shape(), (Dims{3, 0}));
  EXPECT_EQ(values(out.outputs[2]), (std::vector<float>(6, 0)));
}

TEST(Plan, SymbolicShapesAreRefused) {
  Graph g;
  Builder b(g);
  g.add_output("y", neg(b, input(b, "x", kF32, {Dim::symbol("n")})));
  EXPECT_THROW(plan_of(g), Error);
}

}  // namespace
}  // namespace rlx
