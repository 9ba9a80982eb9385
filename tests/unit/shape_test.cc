#include "rlx/base/shape.h"

#include <gtest/gtest.h>

#include <functional>

#include "rlx/base/error.h"

namespace rlx {
namespace {

const Dim n = Dim::symbol("n"), m = Dim::symbol("m");

std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(Shape, TextRoundTrips) {
  for (const Shape& s : {Shape(), Shape{Dim(3)}, Shape{n, Dim(64), n * m - Dim(2)},
                         Shape{floor_div(n + Dim(1), 2), floor_div(floor_div(n * m, 3) * n, 4)}}) {
    EXPECT_EQ(Shape::parse(s.to_string()), s) << s.to_string();
    EXPECT_EQ(Shape::parse(s.to_string()).hash(), s.hash());
  }
  EXPECT_EQ((Shape{Dim(2), n, Dim(3) * n}).to_string(), "[2, n, 3*n]");
  EXPECT_EQ((TensorType{DType::kBF16, {n}}).to_string(), "bf16[n]");
  for (const char* bad : {"", "2", "[2", "2]", "[2,,3]", "[2,]", "[,]", "[2 3]", "[2)]"}) {
    EXPECT_THROW(Shape::parse(bad), Error) << bad;
  }
  EXPECT_THROW(Shape::parse("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"), Error);
}

TEST(Shape, Axes) {
  Shape s{Dim(2), n, Dim(4)};
  EXPECT_FALSE(s.is_static());
  EXPECT_EQ(s.slice(1, 3), (Shape{n, Dim(4)}));
  s.erase(1);
  EXPECT_EQ(s.static_dims(), (Dims{2, 4}));
  s.insert(0, m);
  EXPECT_EQ(s, (Shape{m, Dim(2), Dim(4)}));
  EXPECT_EQ(s.num_elements(), m * Dim(8));
  EXPECT_EQ(s.substitute({{"m", 5}}).static_dims(), (Dims{5, 2, 4}));
  EXPECT_THROW(s.static_dims(), Error);
  EXPECT_EQ(normalize_axis(-1, 3), 2);
  EXPECT_EQ(normalize_axis(2, 3), 2);
  EXPECT_EQ(message([] { normalize_axis(3, 3); }),
            "axis 3 is out of range for rank 3: expected -3 <= axis < 3");
  EXPECT_THROW(normalize_axis(-4, 3), Error);
  EXPECT_THROW(normalize_axis(0, 0), Error);
}

TEST(Shape, Counts) {
  EXPECT_EQ(Shape().num_elements(), Dim(1));
  EXPECT_EQ((Shape{Dim(int64_t(1) << 40), Dim(0), Dim(int64_t(1) << 40)}).num_elements(), Dim(0));
  EXPECT_THROW((Shape{Dim(int64_t(1) << 40), Dim(int64_t(1) << 40)}).num_elements(), Error);
  EXPECT_EQ(num_elements(Dims{2, 0, 3}), 0);
  EXPECT_EQ(num_elements(Dims{}), 1);
  EXPECT_EQ(byte_size(DType::kC128, Dims{3, 5}), 240);
  EXPECT_THROW(byte_size(DType::kC128, Dims{int64_t(1) << 60}), Error);
  EXPECT_EQ(dense_strides(Dims{2, 3, 4}), (Dims{12, 4, 1}));
  EXPECT_EQ(dense_strides(Dims{2, 0, 4}), (Dims{4, 4, 1}));
  EXPECT_EQ(dense_strides(Dims{}), Dims{});
  EXPECT_EQ(dims_to_string(Dims{2, -3}), "[2, -3]");
}

TEST(Shape, Broadcasting) {
  struct Case {
    Shape a, b, result;
  };
  const Case cases[] = {
      {{}, {}, {}},
      {{Dim(3)}, {}, {Dim(3)}},
      {{Dim(2), Dim(1)}, {Dim(3)}, {Dim(2), Dim(3)}},
      {{Dim(1)}, {Dim(0)}, {Dim(0)}},
      {{n, Dim(1)}, {m}, {n, m}},
      {{n}, {n}, {n}},
      {{n, Dim(3)}, {Dim(1), Dim(1), Dim(3)}, {Dim(1), n, Dim(3)}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(broadcast(c.a, c.b), c.result);
    EXPECT_EQ(broadcast(c.b, c.a), c.result);
  }
  EXPECT_EQ(message([] {
              broadcast({Dim(4), Dim(2)}, {Dim(3), Dim(2)});
            }),
            "shapes [4, 2] and [3, 2] do not broadcast: 4 against 3 on axis 2 from the right");
  EXPECT_THROW(broadcast({n}, {m}), Error);
  EXPECT_THROW(broadcast({n}, {Dim(2)}), Error);
  EXPECT_THROW(broadcast({Dim(0)}, {Dim(2)}), Error);
}

}  // namespace
}  // namespace rlx
