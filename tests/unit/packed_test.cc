// Packed dtypes: the codec, the ways they travel, and the kernels on every instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "hwy/targets.h"
#include "rlx/backend/cpu/cpu.h"
#include "rlx/backend/cpu/int8/int8_kernels.h"
#include "rlx/backend/cpu/kernels/packed_codec.h"
#include "rlx/backend/cpu/kernels/packed_dot.h"
#include "rlx/base/error.h"
#include "rlx/base/packed_blocks.h"
#include "rlx/io/npy.h"
#include "rlx/ir/builder.h"
#include "rlx/ir/serialize.h"
#include "rlx/ir/text.h"
#include "rlx/ops/build.h"
#include "rlx/ops/dequant_matmul.h"
#include "rlx/ops/qmatmul.h"
#include "rlx/ops/quantize.h"
#include "rlx/ops/table.h"
#include "rlx/runtime/session.h"
#include "tests/unit/test_util.h"

namespace rlx {
namespace {

constexpr DType kF32 = DType::kF32, kQ8 = DType::kQ8_0, kQ4 = DType::kQ4_0;
constexpr DType kPackedDTypes[] = {kQ4, kQ8};

// Numbers in [-low, low), always the same ones.
class Numbers {
 public:
  float next(float low = 1) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (float(state_ >> 40) * 0x1p-23f - 1) * low;
  }
  Array array(Dims shape) {
    Array a = Array::uninitialized(kF32, std::move(shape));
    for (float& v : a.mutable_data<float>()) v = next();
    return a;
  }

 private:
  uint64_t state_ = 7;
};

// Runs f once with each instruction set of this machine.
template <class F>
void on_every_target(F&& f) {
  for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    f();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

TEST(PackedBlocks, Q8_0ByHand) {
  float x[32] = {};
  x[0] = 127, x[1] = -63.5f, x[2] = 0.5f, x[3] = -0.49f, x[31] = 1;
  uint8_t block[34];
  encode_packed(kQ8, x, 32, block);
  EXPECT_EQ(block[0] | block[1] << 8, 0x3C00);  // the scale 1
  EXPECT_EQ(int8_t(block[2]), 127);
  EXPECT_EQ(int8_t(block[3]), -64);  // halves go away from zero
  EXPECT_EQ(int8_t(block[4]), 1);
  EXPECT_EQ(int8_t(block[5]), 0);
  EXPECT_EQ(int8_t(block[33]), 1);
  float back[32];
  decode_packed(kQ8, block, 32, back);
  EXPECT_EQ(back[1], -64);
}

TEST(PackedBlocks, Q4_0ByHand) {
  float x[32] = {};
  x[0] = -8, x[16] = 7, x[1] = 1.5f, x[17] = -7.75f;
  uint8_t block[18];
  encode_packed(kQ4, x, 32, block);
  EXPECT_EQ(block[0] | block[1] << 8, 0x3C00);
  EXPECT_EQ(block[2], 0xF0);  // -8 is code 0 in the low half, 7 is 15 in the high one
  EXPECT_EQ(block[3], 0x0A);  // 1.5 + 8.5 is cut to 10, -7.75 + 8.5 to 0
  float back[32];
  decode_packed(kQ4, block, 32, back);
  EXPECT_EQ(back[0], -8);
  EXPECT_EQ(back[16], 7);
  EXPECT_EQ(back[1], 2);
  EXPECT_EQ(back[2], 0);
}

TEST(PackedBlocks, WhatIsNotFiniteSpoilsItsBlockAlone) {
  for (const DType t : kPackedDTypes) {
    Array x = Array::full(kF32, {1, 96}, 0.5);
    x.mutable_data<float>()[3] = NAN;
    x.mutable_data<float>()[70] = -INFINITY;
    const Array back = unpack(pack(x, t));
    EXPECT_TRUE(std::isnan(back.at(0)));
    EXPECT_NEAR(back.at(40), 0.5, 0.07);
    EXPECT_TRUE(std::isnan(back.at(95)));
  }
}

TEST(PackedBlocks, VectorsGiveTheSameBytesAndNumbers) {
  Numbers numbers;
  Array x = numbers.array({64, 64});
  auto values = x.mutable_data<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    if (i / 32 % 7 == 1) values[i] *= 1e-39f;
    if (i / 32 % 7 == 2) values[i] *= 3e38f;
    if (i / 32 % 7 == 3) values[i] = std::round(values[i] * 8) / 2;  // ties
    if (i / 32 % 7 == 4) values[i] = i % 2 ? 0.0f : -0.0f;
  }
  values[100] = NAN, values[1000] = INFINITY;
  on_every_target([&] {
    for (const DType t : kPackedDTypes) {
      const Array expected = pack(x, t);
      Array got = Array::uninitialized(t, x.shape());
      cpu::encode_row(t, kF32, x.raw(), x.num_elements(), got.mutable_raw());
      EXPECT_TRUE(got.same_bits(expected)) << to_string(t);
      const Array wide = unpack(expected);
      std::vector<float> back(size_t(x.num_elements()));
      cpu::decode_row(t, expected.raw(), x.num_elements(), kF32, back.data());
      for (size_t i = 0; i < back.size(); ++i) {
        if (std::isnan(wide.data<float>()[i])) {
          ASSERT_TRUE(std::isnan(back[i])) << i;
        } else {
          ASSERT_EQ(back[i], wide.data<float>()[i]) << to_string(t) << " " << i;
        }
      }
    }
  });
}

TEST(PackedDot, EveryTargetAndNumberOfRowsAgainstDoubles) {
  Numbers numbers;
  constexpr int64_t k = 1664, n = 21, most = 19;  // more than two panels
  const Array x = numbers.array({most, k});
  on_every_target([&] {
    for (const DType t : kPackedDTypes) {
      const Array w = pack(numbers.array({n, k}), t), dense = unpack(w);
      std::vector<float> all(size_t(most * n)), y(size_t(most * n), NAN);
      const auto scratch = allocate_aligned(cpu::packed_dot_scratch(most));
      cpu::PackedDot p;
      p.packed = t;
      p.k = p.x_stride = k;
      p.x = x.data<float>().data();
      p.w = static_cast<const uint8_t*>(w.raw());
      p.columns = p.y_stride = n;
      p.scratch = scratch.get();
      p.rows = most;
      p.y = all.data();
      cpu::packed_dot(p);
      for (int64_t i = 0; i < most; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t e = 0; e < k; ++e) sum += x.at(i * k + e) * dense.at(j * k + e);
          ASSERT_NEAR(all[size_t(i * n + j)], sum, 1e-4) << i << " " << j;
        }
      }
      p.y = y.data();
      for (const bool stream : {false, true}) {
        for (p.rows = 1; p.rows <= most; ++p.rows) {
          p.stream = stream;
          cpu::packed_dot(p);
          ASSERT_EQ(std::memcmp(y.data(), all.data(), size_t(p.rows * n) * sizeof(float)), 0)
              << to_string(t) << ": " << p.rows << " rows have other bits";
        }
      }
    }
  });
}

TEST(Int8Kernels, AllGiveTheSameBits) {
  Numbers numbers;
  constexpr int64_t rows = 3, blocks = 5, n = 11;
  std::vector<int8_t> q(rows * blocks * 32);
  std::vector<float> scale(rows * blocks);
  std::vector<int32_t> start(rows * blocks * 8);
  for (int8_t& v : q) v = int8_t(numbers.next(127.9f));
  q[0] = -127, q[1] = 127;
  for (float& v : scale) v = numbers.next();
  for (int32_t& v : start) v = int32_t(numbers.next(1000));
  for (const DType t : kPackedDTypes) {
    Array w = pack(numbers.array({n, blocks * 32}), t);
    auto* bytes = static_cast<uint8_t*>(w.mutable_raw());
    // Every code, the extremes beside each other too.
    for (int64_t i = 0; i < w.byte_size(); ++i) {
      if (i % block_of(t).bytes >= 2) bytes[i] = i % 5 ? uint8_t(numbers.next() * 255) : 0x80;
    }
    std::vector<float> expected;
    for (const cpu::Int8Kernels* kernels : cpu::int8_kernels()) {
      std::vector<float> y(rows * n, NAN);
      kernels->dot({t, blocks, rows, q.data(), scale.data(), start.data(), bytes, n, y.data(), n});
      if (expected.empty()) expected = y;
      EXPECT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)), 0)
          << kernels->name;
      EXPECT_TRUE(std::isfinite(y[0]));
    }
  }
}

TEST(Int8Kernels, ProductsAreExactAtTheExtremes) {
  constexpr int64_t steps = 37;
  std::vector<uint8_t> a(8 * steps * 4);
  for (size_t i = 0; i < a.size(); ++i) a[i] = i % 3 ? 255 : uint8_t(i * 7);
  alignas(64) int8_t b[steps * 4 * cpu::kInt8PanelColumns];
  for (size_t i = 0; i < sizeof b; ++i) b[i] = i % 2 ? -128 : int8_t(127 - int(i % 200));
  for (const cpu::Int8Kernels* kernels : cpu::int8_kernels()) {
    for (int64_t rows = 1; rows <= cpu::kInt8TileRows; ++rows) {
      alignas(64) int32_t sums[cpu::kInt8TileRows * cpu::kInt8PanelColumns] = {};
      kernels->product({rows, a.data(), steps * 4, b, steps, sums});
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < cpu::kInt8PanelColumns; ++j) {
          int32_t sum = 0;
          for (int64_t k = 0; k < steps * 4; ++k) {
            sum +=
                a[size_t(i * steps * 4 + k)] * b[(k / 4 * cpu::kInt8PanelColumns + j) * 4 + k % 4];
          }
          ASSERT_EQ(sums[i * cpu::kInt8PanelColumns + j], sum) << kernels->name;
        }
      }
    }
  }
}

// An embedding and a head that share a packed table, through views of its rows.
Graph tied(DType t, bool as_constant, const Array& table) {
  Graph g("tied");
  Builder b(g);
  const Value w = as_constant ? constant(b, table) : param(b, "table", t, {48, 64});
  const Value ids = input(b, "ids", DType::kI64, {5});
  const Value x = gather(b, narrow(b, w, 0, 8, 32), ids);
  g.add_output("logits", dequant_matmul(b, x, narrow(b, w, 0, 8, 32)));
  g.add_output("rows", transpose(b, reshape(b, w, {6, 8, 64}), {1, 0, 2}));
  return g;
}

TEST(Packed, TravelsThroughGraphsFilesAndWeights) {
  Numbers numbers;
  for (const DType t : kPackedDTypes) {
    const Array table = pack(numbers.array({48, 64}), t);
    const Array ids = Array::from<int64_t>({0, 31, -1, 7, 7}, {5});
    Session session(cpu_device());
    session.weights().set("table", table);
    EXPECT_EQ(session.weights().bytes(), table.byte_size());
    EXPECT_TRUE(session.weights().get("table").same_bits(table));
    const auto out = session.compile(tied(t, false, table)).run({&ids, 1});
    const Graph g = tied(t, true, table);
    EXPECT_TRUE(parse_graph(print(g)) == g);
    const Graph loaded = deserialize(serialize(g), find_op);
    EXPECT_TRUE(loaded == g);
    const auto again = session.compile(loaded).run({&ids, 1});
    ASSERT_EQ(out.size(), 2u);
    for (size_t i = 0; i < out.size(); ++i) EXPECT_TRUE(out[i].same_bits(again[i]));
    EXPECT_EQ(out[1].type().to_string(), std::string(to_string(t)) + "[8, 6, 64]");
    // Row 0 of [8, 6] groups is row 0, 8, 16, ... of the table.
    EXPECT_EQ(unpack(out[1]).at(64), unpack(table).at(8 * 64));
    const Array dense = unpack(table);
    double sum = 0;
    for (int64_t k = 0; k < 64; ++k)
      sum += dense.at((8 + 31) * 64 + k) * dense.at((8 + 2) * 64 + k);
    EXPECT_NEAR(out[0].at(32 + 2), sum, 1e-5);
  }
}

TEST(Packed, LoopsCaptureWeights) {
  const Graph loop = parse_graph(R"(graph loop {
  %0 = Input(){name = "x", shape = [1, 32]}
  %1 = Param(){name = "w", dtype = q8_0, shape = [32, 32]}
  %2 = Scan(%0, %1){body = graph body {
    %0 = Input(){name = "i", dtype = i64, shape = []}
    %1 = Input(){name = "c", shape = [1, 32]}
    %2 = Input(){name = "w", dtype = q8_0, shape = [32, 32]}
    %3 = DequantMatMul(%1, %2)
    output "c" = %3
  }, num_carries = 1, num_captures = 1, length = 3}
  output "y" = %2
})");
  Graph unrolled;
  Builder b(unrolled);
  Value y = input(b, "x", kF32, {1, 32});
  const Value w = param(b, "w", kQ8, {32, 32});
  for (int i = 0; i < 3; ++i) y = dequant_matmul(b, y, w);
  unrolled.add_output("y", y);
  Numbers numbers;
  Session session(cpu_device());
  session.weights().set("w", pack(numbers.array({32, 32}), kQ8));
  const Array x = numbers.array({1, 32});
  const auto got = session.compile(loop).run({&x, 1});
  EXPECT_TRUE(got[0].same_bits(session.compile(unrolled).run({&x, 1})[0]));
}

TEST(Packed, WrongPlacesAreUserErrors) {
  Graph g;
  Builder b(g);
  const Value w = input(b, "w", kQ8, {4, 64});
  EXPECT_NE(error_of([&] { add(b, w, w); }).find("this op has no packed dtypes, dequantize first"),
            std::string::npos);
  EXPECT_NE(error_of([&] { relu(b, w); }).find("no packed dtypes"), std::string::npos);
  EXPECT_NE(error_of([&] { cast(b, input(b, "x", kF32, {32}), kQ8); }).find("no packed dtypes"),
            std::string::npos);
  EXPECT_NE(error_of([&] { stop_gradient(b, w); }).find("no packed dtypes"), std::string::npos);
  EXPECT_NE(error_of([&] {
              input(b, "v", kQ4, {2, 31});
            }).find("whole blocks of 32 elements"),
            std::string::npos);
}

TEST(Packed, SymbolicRows) {
  Graph g;
  Builder b(g);
  const Dim n = Dim::symbol("n"), k = Dim::symbol("k");
  const Value x = input(b, "x", kF32, {n, k});
  g.add_output("y", dequant_matmul(b, x, quantize(b, x, {.dtype = kQ8})));
  Session session(cpu_device());
  Executable e = session.compile(g);
  const Array good = Array::full(kF32, {3, 64}, 0.5), bad = Array::full(kF32, {3, 40}, 0.5);
  EXPECT_NEAR(e.run({&good, 1})[0].at(0), 16, 0.1);
  EXPECT_NE(error_of([&] { e.run({&bad, 1}); }).find("blocks of 32 elements"), std::string::npos);
}

TEST(Packed, TextIsBase64AndCheckedBeforeMemoryIsTaken) {
  Graph g;
  Builder b(g);
  g.add_output("y", constant(b, Array::zeros(kQ4, {1, 32})));
  const std::string text = print(g);
  EXPECT_NE(text.find("q4_0[1, 32] base64 \"AAAAAAAAAAAAAAAAAAAAAAAA\""), std::string::npos)
      << text;
  PrintOptions options;
  options.max_elements = 4;
  EXPECT_NE(print(g, options).find("q4_0[1, 32] {...}"), std::string::npos);
  const auto parse = [](const std::string& tensor, const std::string& shape) {
    return error_of([&] {
      parse_graph("graph g {\n %0 = Constant(){value = " + tensor + ", shape = " + shape + "}\n}");
    });
  };
  EXPECT_NE(parse("q4_0[1, 32] {1, 2}", "[1, 32]").find("write its blocks as base64"),
            std::string::npos);
  EXPECT_NE(
      parse("q4_0[32, 1] base64 \"AAAAAAAAAAAAAAAAAAAAAAAA\"", "[32, 1]").find("blocks of 32"),
      std::string::npos);
  EXPECT_NE(parse("q4_0[33] base64 \"AAAA\"", "[33]").find("blocks of 32"), std::string::npos);
  EXPECT_NE(parse("q8_0[64] base64 \"AAAA\"", "[64]").find("need 92 base64 characters"),
            std::string::npos);
}

TEST(Packed, NumPyHasNone) {
  EXPECT_EQ(error_of([] { write_npy(Array::zeros(kQ8, {32})); }, ErrorKind::kUnsupported),
            "NumPy has no q8_0: dequantize to f32 before writing a .npy file");
}

}  // namespace
}  // namespace rlx
