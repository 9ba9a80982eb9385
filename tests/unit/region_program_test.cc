// The stage machine: every body, shape and instruction set gives the bits of the unfused kernels.
#include "rlx/backend/cpu/region/program.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <cmath>
#include <cstring>
#include <random>

#include "rlx/backend/cpu/cpu.h"
#include "rlx/backend/cpu/region/code.h"
#include "rlx/base/error.h"
#include "rlx/ir/text.h"
#include "rlx/ops/activation.h"
#include "rlx/ops/binary.h"
#include "rlx/ops/build.h"
#include "rlx/ops/compare.h"
#include "rlx/ops/derive.h"
#include "rlx/ops/elementwise_region.h"
#include "rlx/runtime/session.h"
#include "rlx/testing/call_graph.h"

namespace rlx {

RLX_USE_OP(ElementwiseRegion);

namespace {

using cpu::RegionForm;
using cpu::RegionInput;
using cpu::RegionOptions;
using cpu::RegionProgram;
using cpu::RegionRows;

std::vector<std::string> targets() {
  std::vector<std::string> list;
  Graph g;
  Builder b(g);
  g.add_output("out0", neg(b, input(b, "in0", DType::kF32, {})));
  for (const char* name : {"scalar", "avx2", "avx3"}) {
    RegionOptions options;
    options.target = name;
    try {
      RegionProgram::compile(g, options);
      list.emplace_back(name);
    } catch (const Error&) {  // not this machine
    }
  }
  return list;
}

template <class F>
GraphRef body_of(std::initializer_list<DType> types, F make) {
  auto g = std::make_shared<Graph>("body");
  Builder b(*g);
  std::vector<Value> in;
  for (DType t : types) in.push_back(input(b, fmt::format("in{}", in.size()), t, {}));
  const std::vector<Value> out = make(b, in);
  for (size_t i = 0; i < out.size(); ++i) g->add_output(fmt::format("out{}", i), out[i]);
  return g;
}

std::vector<float> numbers(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> draw(-4, 4);
  std::vector<float> v(n);
  for (float& x : v) x = draw(random);
  return v;
}

struct Scratch {
  explicit Scratch(const RegionProgram& p) : memory(allocate_aligned(p.scratch_bytes())) {
    std::memset(memory.get(), 0xFF, size_t(p.scratch_bytes()));  // NaN
  }
  std::shared_ptr<void> memory;
};

GraphRef scale_shift() {
  return body_of({DType::kF32, DType::kF32, DType::kF32}, [](Builder& b, auto& x) {
    return std::vector<Value>{add(b, mul(b, x[0], x[1]), x[2])};
  });
}

TEST(RegionProgram, TailsOfEveryLength) {
  for (const std::string& target : targets()) {
    RegionOptions options;
    options.target = target;
    const RegionProgram p = RegionProgram::compile(*scale_shift(), options);
    const Scratch scratch(p);
    for (int64_t n = 0; n <= 300; ++n) {
      std::vector<float> x = numbers(size_t(n), 1), y = numbers(size_t(n), 2),
                         z = numbers(size_t(n), 3), out(size_t(n) + 1, 77.0f);
      const RegionRows in[] = {{x.data()}, {y.data()}, {z.data()}}, to[] = {{out.data()}};
      p.run(in, to, n, 1, scratch.memory.get());
      for (size_t k = 0; k < size_t(n); ++k) {
        const float product = x[k] * y[k];
        ASSERT_EQ(out[k], product + z[k]) << target << " " << n << " at " << k;
      }
      ASSERT_EQ(out[size_t(n)], 77.0f) << "written beyond the end";
    }
  }
}

// Tiles: rows of any width in a wider matrix, a column vector, a value per row, in place.
TEST(RegionProgram, TilesInPlaceWithBiasAndRowScale) {
  const GraphRef body = scale_shift();
  for (const std::string& target : targets()) {
    RegionOptions options;
    options.target = target;
    options.inputs = {{RegionForm::kColumns}, {RegionForm::kRow}, {RegionForm::kColumns}};
    const RegionProgram p = RegionProgram::compile(*body, options);
    const Scratch scratch(p);
    for (int64_t columns :
         {1, 2, 3, 14, 16, 17, 31, 64, 100, 128, 197, 256, 511, 512, 1000, 1500}) {
      for (int64_t rows : {1, 2, 5, 64}) {
        const int64_t stride = columns + 5;
        std::vector<float> tile = numbers(size_t(rows * stride), 1);
        const std::vector<float> before = tile;
        std::vector<float> scale = numbers(size_t(rows), 2), bias = numbers(size_t(columns), 3);
        const RegionRows in[] = {{tile.data(), stride * 4}, {scale.data(), 4}, {bias.data(), 0}};
        const RegionRows out[] = {{tile.data(), stride * 4}};
        p.run(in, out, columns, rows, scratch.memory.get());
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < stride; ++c) {
            const auto k = size_t(r * stride + c);
            const float product = before[k] * scale[size_t(r)];
            const float expected = c < columns ? product + bias[size_t(c)] : before[k];
            ASSERT_EQ(tile[k], expected)
                << target << " " << rows << "x" << columns << " at " << r << ", " << c;
          }
        }
      }
    }
  }
}

TEST(RegionProgram, StridedColumnsOnBothSides) {
  const RegionProgram p = RegionProgram::compile(*scale_shift());
  const Scratch scratch(p);
  const int64_t rows = 7, columns = 45;
  std::vector<float> x = numbers(size_t(rows * columns), 1), y = numbers(size_t(rows * columns), 2),
                     z = numbers(size_t(rows * columns), 3), out(size_t(rows * columns));
  // x and the result lie transposed.
  const RegionRows in[] = {
      {x.data(), 4, rows * 4}, {y.data(), columns * 4}, {z.data(), columns * 4}};
  const RegionRows to[] = {{out.data(), 4, rows * 4}};
  p.run(in, to, columns, rows, scratch.memory.get());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const auto t = size_t(c * rows + r), k = size_t(r * columns + c);
      const float product = x[t] * y[k];
      EXPECT_EQ(out[t], product + z[k]);
    }
  }
}

// Two results, the first in the place of an input that is read after it.
TEST(RegionProgram, AResultInPlaceWaitsForTheLastReadOfItsInput) {
  const GraphRef body = body_of({DType::kF32, DType::kF32}, [](Builder& b, auto& x) {
    const Value sum = add(b, x[0], x[1]);
    return std::vector<Value>{sum, mul(b, sum, x[0])};
  });
  for (const std::string& target : targets()) {
    RegionOptions options;
    options.target = target;
    const RegionProgram p = RegionProgram::compile(*body, options);
    const Scratch scratch(p);
    std::vector<float> x = numbers(300, 1), y = numbers(300, 2), z(300);
    const std::vector<float> before = x;
    const RegionRows in[] = {{x.data()}, {y.data()}}, out[] = {{x.data()}, {z.data()}};
    p.run(in, out, 300, 1, scratch.memory.get());
    for (size_t k = 0; k < 300; ++k) {
      const float sum = before[k] + y[k];
      EXPECT_EQ(x[k], sum);
      EXPECT_EQ(z[k], sum * before[k]);
    }
  }
}

TEST(RegionProgram, ResultsThatNobodyWantsNeedNoMemory) {
  const GraphRef body = body_of({DType::kF32}, [](Builder& b, auto& x) {
    return std::vector<Value>{exp(b, x[0]), neg(b, x[0])};
  });
  const RegionProgram p = RegionProgram::compile(*body);
  const Scratch scratch(p);
  std::vector<float> x = numbers(777, 1), y(777);
  const RegionRows in[] = {{x.data()}}, out[] = {{}, {y.data()}};
  p.run(in, out, 777, 1, scratch.memory.get());
  for (size_t k = 0; k < 777; ++k) EXPECT_EQ(y[k], -x[k]);
}

// A product tile in f32 of a matrix product on f16, and results kept in f32.
TEST(RegionProgram, SixteenBitsMayBeStoredAsF32) {
  const DType f16 = DType::kF16;
  const GraphRef body = body_of(
      {f16, f16}, [](Builder& b, auto& x) { return std::vector<Value>{add(b, x[0], x[1])}; });
  RegionOptions options;
  options.inputs = {{RegionForm::kColumns, DType::kF32}, {RegionForm::kColumns, f16}};
  options.stored_results = {DType::kF32};
  const RegionProgram p = RegionProgram::compile(*body, options);
  const Scratch scratch(p);
  std::vector<float> x = numbers(200, 1), y(200);
  std::vector<rlx::f16> half(200, rlx::f16(0.5f));
  const RegionRows in[] = {{x.data()}, {half.data()}}, out[] = {{y.data()}};
  p.run(in, out, 200, 1, scratch.memory.get());
  for (size_t k = 0; k < 200; ++k) EXPECT_EQ(y[k], x[k] + 0.5f);
}

// ---- Random bodies against the plan without regions ----

class RandomBody {
 public:
  RandomBody(uint32_t seed, std::vector<DType> types) : random_(seed), types_(std::move(types)) {}

  GraphRef make(size_t inputs, size_t nodes) {
    auto g = std::make_shared<Graph>("body");
    Builder b(*g);
    for (size_t i = 0; i < inputs; ++i) {
      add_value(b, input(b, fmt::format("in{}", i), types_[pick(types_.size())], {}));
    }
    for (DType t : types_) {
      if (t != DType::kBool) add_value(b, scalar(b, t, 1.5));
    }
    for (size_t i = 0; i < nodes; ++i) add_value(b, node(b));
    g->add_output("out0", values_.back());
    g->add_output("out1", values_[values_.size() - 2 - pick(nodes / 2)]);
    return g;
  }

 private:
  size_t pick(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  void add_value(Builder& b, Value v) {
    values_.push_back(v);
    by_type_[size_t(b.dtype(v))].push_back(v);
  }
  Value any() { return values_[pick(2) == 0 ? values_.size() - 1 : pick(values_.size())]; }
  Value like(Builder& b, Value v) {
    const auto& list = by_type_[size_t(b.dtype(v))];
    return list[pick(list.size())];
  }

  Value node(Builder& b) {
    for (;;) {
      const Value x = any(), y = like(b, x);
      try {
        switch (pick(9)) {
          case 0:
          case 1:
          case 2:
            return binary(b, BinaryKind(pick(kEnumCount<BinaryKind>)), x, y);
          case 3:
            return activation(b, ActivationKind(pick(kEnumCount<ActivationKind>)), x);
          case 4:
            return compare(b, CompareKind(pick(kEnumCount<CompareKind>)), x, y);
          case 5: {
            const auto& conditions = by_type_[size_t(DType::kBool)];
            if (conditions.empty()) continue;
            return where(b, conditions[pick(conditions.size())], x, y);
          }
          case 6:
            return fma(b, x, y, like(b, x));
          case 7: {
            const DType to = types_[pick(types_.size())];
            if (to == b.dtype(x)) continue;
            return cast(b, x, to);
          }
          default:
            return activation_backward(b, ActivationKind(pick(kEnumCount<ActivationKind>)), x, y);
        }
      } catch (const Error&) {  // a dtype that the kind does not take
      }
    }
  }

  std::mt19937 random_;
  std::vector<DType> types_;
  std::vector<Value> values_;
  std::array<std::vector<Value>, size_t(kNumDTypes)> by_type_;
};

// Any NaN is as good as another.
bool same_element(DType t, const std::byte* a, const std::byte* b) {
  const auto size = size_t(size_of(t));
  if (std::memcmp(a, b, size) == 0) return true;
  return visit_dtype(t, [&]<class T>() {
    T u, v;
    std::memcpy(&u, a, size);
    std::memcpy(&v, b, size);
    if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>) {
      return std::isnan(float(u)) && std::isnan(float(v));
    } else if constexpr (std::is_floating_point_v<T>) {
      return std::isnan(u) && std::isnan(v);
    } else {
      return false;
    }
  });
}

void expect_same(const Array& a, const Array& b, const std::string& what) {
  ASSERT_EQ(a.type(), b.type());
  const auto* x = static_cast<const std::byte*>(a.raw());
  const auto* y = static_cast<const std::byte*>(b.raw());
  const auto size = size_t(size_of(a.dtype()));
  for (size_t k = 0; k < size_t(a.num_elements()); ++k) {
    ASSERT_TRUE(same_element(a.dtype(), x + k * size, y + k * size))
        << what << ": element " << k << " is " << a.at(int64_t(k)) << " against "
        << b.at(int64_t(k));
  }
}

Array random_array(DType t, Dims shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> draw(-6, 6);
  Array a = Array::zeros(t, std::move(shape));
  auto* to = static_cast<std::byte*>(a.mutable_raw());
  for (int64_t k = 0; k < a.num_elements(); ++k) {
    const Array one = Array::full(t, {}, t == DType::kBool ? double(random() % 2) : draw(random));
    std::memcpy(to + k * size_of(t), one.raw(), size_t(size_of(t)));
  }
  return a;
}

// The same on every instruction set: operand i is a matrix, a row, a column or a number by i % 4.
void check_targets(const GraphRef& body, bool strict, std::span<const Array> arrays,
                   std::span<const Array> expected, const std::string& what) {
  RegionOptions options;
  options.strict = strict;
  std::vector<RegionRows> in, out;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const DType t = arrays[i].dtype();
    const RegionForm forms[] = {RegionForm::kColumns, RegionForm::kColumns, RegionForm::kRow,
                                RegionForm::kSingle};
    const int64_t strides[] = {67 * size_of(t), 0, size_of(t), 0};
    options.inputs.push_back({forms[i % 4], t});
    in.push_back({const_cast<void*>(arrays[i].raw()), strides[i % 4]});
  }
  for (const std::string& target : targets()) {
    options.target = target;
    const RegionProgram p = RegionProgram::compile(*body, options);
    const Scratch scratch(p);
    std::vector<Array> results;
    out.clear();
    for (const Array& a : expected) {
      results.push_back(Array::zeros(a.dtype(), a.shape()));
      out.push_back({results.back().mutable_raw(), 67 * size_of(a.dtype())});
    }
    p.run(in, out, 67, 9, scratch.memory.get());
    for (size_t i = 0; i < results.size(); ++i) {
      expect_same(results[i], expected[i], fmt::format("{} on {}, result {}", what, target, i));
    }
  }
}

// The same call as a region and as its nodes.
void check_body(const GraphRef& body, bool strict, const std::string& what) {
  std::vector<TensorType> types;
  std::vector<Array> arrays;
  const Dims shapes[] = {{9, 67}, {67}, {9, 1}, {}};
  for (size_t i = 0; i < body->inputs().size(); ++i) {
    arrays.push_back(random_array(body->type(body->inputs()[i]).dtype, shapes[i % 4], uint32_t(i)));
    types.push_back(arrays.back().type());
  }
  const Attrs attrs = Attrs::of(kElementwiseRegionOp.fields, ElementwiseRegionAttrs{body, strict});
  Session session(cpu_device());
  const std::vector<Array> fused =
      session.compile(call_graph(kElementwiseRegionOp, attrs, types)).run(arrays);
  CompileOptions alone;
  alone.fuse = false;
  const std::vector<Array> inlined =
      session.compile(expand_to_graph(kElementwiseRegionOp, attrs, types), alone).run(arrays);
  for (size_t i = 0; i < fused.size(); ++i) {
    expect_same(fused[i], inlined[i], fmt::format("{}, result {}", what, i));
  }
  if (!fused[0].shape().empty()) check_targets(body, strict, arrays, fused, what);
}

TEST(RegionProgram, RandomBodiesGiveTheBitsOfTheirNodes) {
  const std::vector<std::vector<DType>> sets = {
      {DType::kF32},
      {DType::kF32, DType::kBool},
      {DType::kF64, DType::kBool},
      {DType::kF32, DType::kI32, DType::kBool},
      {DType::kF16, DType::kF32},
      {DType::kBF16, DType::kF16, DType::kI8},
      {DType::kF32, DType::kF64, DType::kF16, DType::kI64, DType::kBool},
      {DType::kU8, DType::kI16, DType::kU32, DType::kU64},
  };
  for (uint32_t seed = 0; seed < 160; ++seed) {
    RandomBody random(seed, sets[seed % sets.size()]);
    const GraphRef body = random.make(1 + seed % 5, 2 + seed % 37);
    check_body(body, seed % 3 == 0, fmt::format("seed {}", seed));
    if (HasFatalFailure()) {
      FAIL() << print(*body);
    }
  }
}

// ---- Lowering ----

// Products and negations that other stages take along, on either side, and squares.
TEST(RegionProgram, FusedOperandsGiveTheBitsOfTheirNodes) {
  using Values = std::vector<Value>;
  for (DType t : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    const GraphRef products = body_of({t, t, t, t}, [](Builder& b, const Values& x) {
      const Value y = exp(b, x[0]);
      const Value plus = add(b, mul(b, x[1], x[0]), y);
      const Value minus = sub(b, plus, mul(b, x[2], 0.3));
      const Value reversed = sub(b, mul(b, x[3], x[1]), minus);
      return Values{sub(b, mul(b, reversed, x[2]), x[1]), sub(b, x[0], mul(b, plus, x[2]))};
    });
    const GraphRef negations = body_of({t, t, t}, [](Builder& b, const Values& x) {
      const Value a = add(b, mul(b, x[0], x[1]), neg(b, x[2]));
      const Value c = add(b, neg(b, a), x[0]);
      const Value square = mul(b, c, c);
      return Values{sub(b, square, neg(b, mul(b, x[0], x[0]))), neg(b, square)};
    });
    for (bool strict : {false, true}) {
      check_body(products, strict, fmt::format("products of {}", to_string(t)));
      check_body(negations, strict, fmt::format("negations of {}", to_string(t)));
    }
  }
}

Value step_of(Builder& b, int kind, Value x, Value y, bool swap) {
  if (swap) std::swap(x, y);
  switch (kind) {
    case 0:
      return add(b, x, y);
    case 1:
      return sub(b, x, y);
    case 2:
      return mul(b, x, y);
    case 3:
      return div(b, x, y);
    case 4:
      return maximum(b, x, y);
    case 5:
      return fma(b, x, y, y);
    case 6:
      return activation(b, ActivationKind::kRelu, x);
    default:
      return mul(b, x, x);
  }
}

// All chains of one or two cheap steps, most of which run as one loop, over operands in memory,
// rows and numbers.
TEST(RegionProgram, ShortChainsGiveTheBitsOfTheirNodes) {
  for (DType t : {DType::kF32, DType::kF64}) {
    for (int k = 0; k < 8 * 8 * 9; k += t == DType::kF32 ? 1 : 5) {
      const int first = k / 72, second = k / 9 % 8, operands = k % 9;
      const bool swap = k % 2 != 0;
      const GraphRef body = body_of({t, t, t, t}, [&](Builder& b, const std::vector<Value>& x) {
        const Value y = x[1 + size_t(operands) / 3], z = x[1 + size_t(operands) % 3];
        const Value one = step_of(b, first, x[0], y, swap);
        return std::vector<Value>{step_of(b, second, one, z, swap)};
      });
      check_body(body, false,
                 fmt::format("{} then {} on {} of {}", first, second, operands, to_string(t)));
      if (HasFatalFailure()) FAIL() << print(*body);
    }
  }
}

#if defined(__x86_64__)
// x in memory, y in memory, a and b numbers.
GraphRef sum_of_scaled(DType t) {
  return body_of({t, t, t, t}, [](Builder& b, auto& x) {
    return std::vector<Value>{add(b, mul(b, x[2], x[0]), mul(b, x[1], x[3]))};
  });
}

TEST(RegionProgram, CommonChainsRunAsOneLoop) {
  using cpu::region::Form;
  using cpu::region::StageOp;
  using cpu::region::StepKey;
  const std::vector<std::string> here = targets();
  if (std::find(here.begin(), here.end(), "avx2") == here.end()) GTEST_SKIP() << "needs AVX2";
  const cpu::region::StageTable& table = cpu::region::kStagesAvx2;
  const auto check = [&](const GraphRef& body, std::vector<StepKey> keys) {
    RegionOptions options;
    for (size_t i = 0; i < body->inputs().size(); ++i) {
      options.inputs.push_back({i < 2 ? RegionForm::kColumns : RegionForm::kSingle,
                                body->type(body->inputs()[i]).dtype});
    }
    const bool wide = cpu::region::computes_in_f64(*body);
    const cpu::region::Code code = cpu::region::lower(*body, options, table, wide, false);
    const auto find = wide ? table.find_loop_f64 : table.find_loop_f32;
    const auto loop = find(keys.data(), keys.size());
    ASSERT_NE(loop, nullptr) << print(*body);
    ASSERT_EQ(code.stages.size(), keys.size()) << print(*body);
    EXPECT_EQ(code.stages[0].run, loop) << print(*body);
  };
  const Form m = Form::kMemory, s = Form::kScalar;
  for (DType t : {DType::kF32, DType::kF64}) {
    check(sum_of_scaled(t), {{StageOp::kMul, s, m}, {StageOp::kAddMul, m, s}});
    check(body_of({t, t, t, t},
                  [](Builder& b, auto& x) {
                    return std::vector<Value>{add(b, mul(b, x[2], x[0]), x[3])};
                  }),
          {{StageOp::kMulAdd, s, s}});
    check(body_of({t, t},
                  [](Builder& b, auto& x) {
                    return std::vector<Value>{
                        activation(b, ActivationKind::kRelu, add(b, x[0], x[1]))};
                  }),
          {{StageOp::kAdd, m, m}, {StageOp::kRelu, m, m}});
    check(body_of({t, t, t},
                  [](Builder& b, auto& x) {
                    return std::vector<Value>{mul(b, sub(b, x[0], x[2]), x[1])};
                  }),
          {{StageOp::kSub, s, m}, {StageOp::kMul, m, m}});
    check(body_of({t, t, t},
                  [](Builder& b, auto& x) {
                    return std::vector<Value>{sub(b, x[0], mul(b, x[1], x[2]))};
                  }),
          {{StageOp::kMulRSub, s, m}});
  }
}
#endif

TEST(RegionProgram, RefusesWhatHasNoPlace) {
  Graph g;
  Builder b(g);
  Value v = input(b, "in0", DType::kF32, {});
  for (int i = 0; i < 11000; ++i) v = neg(b, v);
  g.add_output("out0", v);
  EXPECT_EQ(RegionProgram::refuses(g), "a body of more than 10000 nodes");
}

TEST(RegionProgram, ALongChainKeepsItsScratchSmall) {
  const auto chain = [](int length) {
    Graph g;
    Builder b(g);
    Value v = input(b, "in0", DType::kF32, {});
    const Value x = v;
    for (int i = 0; i < length; ++i) v = sub(b, mul(b, v, x), x);
    g.add_output("out0", v);
    return RegionProgram::compile(g);
  };
  EXPECT_EQ(chain(10).scratch_bytes(), chain(1000).scratch_bytes());
}

// Every group is entered by a tail call: otherwise the stack would grow with them.
void* run_on_small_stack(void* result) {
  const GraphRef body = body_of({DType::kF32}, [](Builder& b, auto& x) {
    Value v = x[0];
    for (int i = 0; i < 8; ++i) v = add(b, exp(b, neg(b, v)), x[0]);
    for (ActivationKind k : {ActivationKind::kSigmoid, ActivationKind::kTanh, ActivationKind::kSilu,
                             ActivationKind::kGelu, ActivationKind::kGeluApprox}) {
      v = activation(b, k, v);
    }
    return std::vector<Value>{v, less(b, v, x[0]), cast(b, v, DType::kI32)};
  });
  bool* ok = static_cast<bool*>(result);
  for (const std::string& target : targets()) {
    RegionOptions options;
    options.target = target;
    const RegionProgram p = RegionProgram::compile(*body, options);
    const Scratch scratch(p);
    constexpr int64_t kGroups = 100000;
    const int64_t n = kGroups * (target == "scalar" ? 8 : target == "avx2" ? 64 : 128);
    std::vector<float> x(size_t(n), 0.5f), y(size_t(n), 0.0f);
    const RegionRows in[] = {{x.data()}}, out[] = {{y.data()}, {}, {}};
    p.run(in, out, n, 1, scratch.memory.get());
    *ok &= y.front() == y.back() && y.front() > 0;
  }
  return nullptr;
}

TEST(RegionProgram, TheStackDoesNotGrowWithTheGroups) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, size_t(256) << 10);
  pthread_t thread;
  bool ok = true;
  ASSERT_EQ(pthread_create(&thread, &attributes, run_on_small_stack, &ok), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_TRUE(ok);
}

}  // namespace
}  // namespace rlx
