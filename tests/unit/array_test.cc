#include "rlx/base/array.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "rlx/base/error.h"

namespace rlx {
namespace {

std::string message(const std::function<void()>& f, ErrorKind kind = ErrorKind::kUser) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(to_string(e.kind()), to_string(kind)) << e.message();
    return e.message();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

std::vector<int32_t> values(const Array& a) {
  const Array d = a.dense();
  const auto s = d.data<int32_t>();
  return {s.begin(), s.end()};
}

TEST(Array, Owned) {
  const Array a = Array::from<int32_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(a.type().to_string(), "i32[2, 3]");
  EXPECT_EQ(a.strides(), (Dims{3, 1}));
  EXPECT_EQ(a.byte_size(), 24);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.raw()) % 64, 0u);
  EXPECT_EQ(a.at(4), 5);
  EXPECT_THROW(a.at(6), Error);
  EXPECT_THROW(a.at(-1), Error);
  const Array z = Array::zeros(DType::kF64, {3});
  for (double v : z.data<double>()) EXPECT_EQ(v, 0);
  EXPECT_EQ(Array::scalar<float>(2.5f).data<float>()[0], 2.5f);
  EXPECT_FALSE(Array().defined());
  Array shared = a;
  shared.mutable_data<int32_t>()[0] = 9;
  EXPECT_EQ(a.at(0), 9);
  Array copy = a.copy();
  copy.mutable_data<int32_t>()[0] = 1;
  EXPECT_EQ(a.at(0), 9);
}

TEST(Array, TypedAccessIsChecked) {
  const Array a = Array::from<int32_t>({1, 2}, {2});
  EXPECT_EQ(message([&] { a.data<float>(); }), "the array holds i32, it was read as f32");
  EXPECT_EQ(message([&] {
              Array::from<int32_t>({1, 2}, {3});
            }),
            "an array of shape [3] needs 3 values, 2 were given");
  EXPECT_EQ(message([&] {
              Array::zeros(DType::kF32, {2, -1});
            }),
            "an array cannot have the shape [2, -1]");
  EXPECT_THROW(Array::zeros(DType::kF32, Dims(17, 1)), Error);
  EXPECT_THROW(Array::zeros(DType::kF32, {int64_t(1) << 40, int64_t(1) << 40}), Error);
  message([] { Array::zeros(DType::kF32, {int64_t(1) << 55}); }, ErrorKind::kDevice);
}

TEST(Array, StridedViews) {
  std::vector<int32_t> data(24);
  std::iota(data.begin(), data.end(), 0);
  struct Case {
    int offset;
    Dims shape, strides;
    std::vector<int32_t> expected;
  };
  const Case cases[] = {
      {0, {2, 3}, {3, 1}, {0, 1, 2, 3, 4, 5}},
      {0, {3, 2}, {1, 3}, {0, 3, 1, 4, 2, 5}},    // transposed
      {5, {6}, {-1}, {5, 4, 3, 2, 1, 0}},         // reversed
      {5, {2, 3}, {-3, -1}, {5, 4, 3, 2, 1, 0}},  // both
      {1, {3}, {0}, {1, 1, 1}},                   // repeated
      {0, {2, 2, 2}, {12, 0, 4}, {0, 4, 0, 4, 12, 16, 12, 16}},
      {7, {}, {}, {7}},
      {3, {1, 1}, {100, -100}, {3}},  // strides of single axes are idle
      {0, {0, 3}, {3, 1}, {}},
  };
  for (const Case& c : cases) {
    const Array a = Array::borrow(DType::kI32, data.data() + c.offset, c.shape, c.strides);
    EXPECT_EQ(values(a), c.expected);
    for (size_t i = 0; i < c.expected.size(); ++i) EXPECT_EQ(a.at(int64_t(i)), c.expected[i]);
    EXPECT_TRUE(a.same_bits(a.copy()));
    EXPECT_TRUE(a.copy().is_dense());
  }
  const Array t = Array::borrow(DType::kI32, data.data(), {3, 2}, {1, 3});
  EXPECT_FALSE(t.is_dense());
  EXPECT_NE(message([&] { t.data<int32_t>(); }).find("strided"), std::string::npos);
  EXPECT_EQ(values(t.reshaped({6})), (std::vector<int32_t>{0, 3, 1, 4, 2, 5}));
}

TEST(Array, CopiesIntoStrides) {
  std::vector<int32_t> data(6, 0);
  Array t = Array::borrow(DType::kI32, data.data() + 5, {3, 2}, {-1, -3});
  t.copy_from(Array::from<int32_t>({1, 2, 3, 4, 5, 6}, {3, 2}));
  EXPECT_EQ(data, (std::vector<int32_t>{6, 4, 2, 5, 3, 1}));
  EXPECT_EQ(message([&] { t.copy_from(Array::zeros(DType::kI32, {6})); }),
            "cannot copy an array of type i32[6] into one of type i32[3, 2]");
  EXPECT_THROW(t.copy_from(Array::zeros(DType::kF32, {3, 2})), Error);
}

TEST(Array, EmptyShapes) {
  for (const Dims& shape : {Dims{0}, Dims{2, 0}, Dims{0, 2}, Dims{3, 0, 0, 4}}) {
    Array a = Array::zeros(DType::kF32, shape);
    EXPECT_EQ(a.num_elements(), 0);
    EXPECT_TRUE(a.is_dense());
    EXPECT_TRUE(a.data<float>().empty());
    EXPECT_TRUE(a.same_bits(a.copy()));
    a.copy_from(a.copy());
    EXPECT_EQ(a.reshaped({0}).shape(), Dims{0});
  }
  const Array none = Array::borrow(DType::kF32, nullptr, {0, 5});
  EXPECT_TRUE(none.copy().defined());
  const Array odd = Array::borrow(DType::kF32, nullptr, {int64_t(1) << 62, 0, 4}, {7, 7, 7});
  EXPECT_TRUE(odd.is_dense());
  EXPECT_TRUE(odd.data<float>().empty());
}

TEST(Array, Borrowing) {
  float x = 1;
  EXPECT_EQ(message([] { Array::borrow(DType::kF32, nullptr, {1}); }),
            "an array borrows a null pointer");
  EXPECT_EQ(message([&] {
              Array::borrow(DType::kF32, &x, {1}, {1, 1});
            }),
            "an array of rank 1 needs 1 strides, 2 were given");
  Array locked = Array::borrow(DType::kF32, &x, {1}, {}, nullptr, false);
  EXPECT_EQ(message([&] { locked.mutable_data<float>(); }),
            "the array of type f32[1] is read-only");
  EXPECT_EQ(locked.data<float>()[0], 1);
  auto owner = std::make_shared<std::vector<float>>(4, 2.0f);
  std::weak_ptr<std::vector<float>> watch = owner;
  {
    const Array a = Array::borrow(DType::kF32, owner->data(), {4}, {}, owner);
    owner.reset();
    EXPECT_EQ(a.at(3), 2);
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
}

TEST(Array, Filling) {
  EXPECT_EQ(values(Array::full(DType::kI32, {2}, -3)), (std::vector<int32_t>{-3, -3}));
  EXPECT_EQ(values(Array::full(DType::kI32, {1}, 2.5)), (std::vector<int32_t>{2}));
  EXPECT_EQ(values(Array::full(DType::kI32, {1}, -2.5)), (std::vector<int32_t>{-2}));
  EXPECT_EQ(Array::full(DType::kF16, {1}, 65504).at(0), 65504);
  EXPECT_EQ(Array::full(DType::kC64, {1}, 1.5).data<std::complex<float>>()[0].imag(), 0);
  EXPECT_TRUE(Array::full(DType::kBool, {1}, 0.5).data<bool>()[0]);
  EXPECT_EQ(Array::full(DType::kI64, {1}, -0x1p63).data<int64_t>()[0], INT64_MIN);
  EXPECT_EQ(Array::full(DType::kU64, {1}, 0x1p63).data<uint64_t>()[0], uint64_t(1) << 63);
  EXPECT_EQ(Array::full(DType::kI8, {1}, 128).at(0), 127);
  EXPECT_EQ(Array::full(DType::kI8, {1}, -INFINITY).at(0), -128);
  EXPECT_EQ(Array::full(DType::kU64, {1}, -1).data<uint64_t>()[0], 0u);
  EXPECT_EQ(Array::full(DType::kU64, {1}, 0x1p64).data<uint64_t>()[0], UINT64_MAX);
  EXPECT_EQ(Array::full(DType::kI64, {1}, INFINITY).data<int64_t>()[0], INT64_MAX);
  EXPECT_EQ(Array::full(DType::kI64, {1}, NAN).data<int64_t>()[0], 0);
}

TEST(Array, BitwiseEquality) {
  const Array nan = Array::scalar<float>(NAN);
  EXPECT_TRUE(nan.same_bits(nan.copy()));
  EXPECT_FALSE(Array::scalar<float>(0.0f).same_bits(Array::scalar<float>(-0.0f)));
  EXPECT_FALSE(Array::scalar<float>(0).same_bits(Array::scalar<int32_t>(0)));
  EXPECT_FALSE(Array::zeros(DType::kF32, {2}).same_bits(Array::zeros(DType::kF32, {1, 2})));
  EXPECT_TRUE(Array().same_bits(Array()));
  EXPECT_FALSE(Array().same_bits(Array::zeros(DType::kF32, {})));
  EXPECT_FALSE(Array::zeros(DType::kF32, {}).same_bits(Array()));
  EXPECT_FALSE(Array::zeros(DType::kF32, {0}).same_bits(Array::zeros(DType::kF32, {0, 2})));
}

}  // namespace
}  // namespace rlx
