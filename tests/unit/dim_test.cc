#include "rlx/base/dim.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "rlx/base/checked.h"
#include "rlx/base/error.h"

namespace rlx {
namespace {

const Dim n = Dim::symbol("n"), m = Dim::symbol("m"), k = Dim::symbol("k");

std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUser);
    return e.message();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(Dim, StaticSizes) {
  EXPECT_EQ(Dim().value(), 0);
  EXPECT_EQ((Dim(2) + Dim(3) * Dim(4) - Dim(20)).value(), -6);
  EXPECT_EQ(floor_div(Dim(-7), 2).value(), -4);
  EXPECT_EQ(Dim(5).to_string(), "5");
  EXPECT_FALSE(Dim(5).as_symbol());
  EXPECT_TRUE(Dim(5).is(5));
  EXPECT_FALSE(n.is(5));
}

TEST(Dim, EqualSizesCompareEqual) {
  const std::pair<Dim, Dim> pairs[] = {
      {Dim(2) * n + n, n * Dim(3)},
      {n * m, m * n},
      {n + m + k, k + (m + n)},
      {(n + m) * (n - m), n * n - m * m},
      {n - n, Dim(0)},
      {(n + Dim(1)) - n, Dim(1)},
      {floor_div(Dim(2) * n + Dim(2), 2), n + Dim(1)},
      {floor_div(n + Dim(3), 2), floor_div(n + Dim(1), 2) + Dim(1)},
      {floor_div(n, 1), n},
      {floor_div(Dim(2) * n, 4), floor_div(n, 2)},
      {floor_div(Dim(2) * n + Dim(1), 4), floor_div(n, 2)},
      {floor_div(Dim(6) * n + Dim(5), 9), floor_div(Dim(2) * n + Dim(1), 3)},
      {floor_div(floor_div(n, 2), 3), floor_div(n, 6)},
      {floor_div(floor_div(n + Dim(1), 2) + Dim(1), 2), floor_div(n + Dim(3), 4)},
      {floor_div(Dim(-1) * n, 2), floor_div(n, 2) - n},
      {floor_div(n, 2) * m, m * floor_div(n, 2)},
  };
  for (const auto& [a, b] : pairs) {
    EXPECT_EQ(a, b) << a.to_string() << " against " << b.to_string();
    EXPECT_EQ(a.hash(), b.hash());
    EXPECT_EQ(a.to_string(), b.to_string());
  }
  EXPECT_FALSE(n == m);
  EXPECT_FALSE(n == Dim(0));
  EXPECT_FALSE(floor_div(n, 2) == floor_div(n, 3));
}

TEST(Dim, Substitution) {
  const Dim e = floor_div(n * m + Dim(1), 2) - Dim(3) * k;
  EXPECT_EQ(e.evaluate({{"n", 3}, {"m", 5}, {"k", 2}}), 2);
  EXPECT_EQ(e.substitute({{"m", 2}}), n - Dim(3) * k);
  EXPECT_EQ(message([&] {
              e.evaluate({{"n", 1}});
            }),
            "the size floor(1 + m, 2) - 3*k has unbound symbols");
  EXPECT_EQ(message([&] { e.value(); }),
            "the size floor(1 + m*n, 2) - 3*k is symbolic; bind its symbols first");
  std::vector<std::string> symbols;
  e.collect_symbols(symbols);
  EXPECT_EQ(symbols, (std::vector<std::string>{"m", "n", "k"}));
  EXPECT_EQ(n.as_symbol(), "n");
  EXPECT_FALSE((n + Dim(1)).as_symbol());
  EXPECT_FALSE((Dim(2) * n).as_symbol());
  EXPECT_FALSE(floor_div(n, 2).as_symbol());
}

TEST(Dim, Names) {
  EXPECT_EQ(Dim::symbol("_a9").to_string(), "_a9");
  for (const char* bad : {"", "9a", "a-b", "a b", "floor", "\xC3\xA9"}) {
    EXPECT_THROW(Dim::symbol(bad), Error) << bad;
  }
}

// A random expression and its value under the bindings, computed apart.
struct Sample {
  Dim dim;
  int64_t value;
};
Sample random_dim(std::mt19937& random, const SymbolBindings& bindings, int depth) {
  const int kind = depth == 0 ? int(random() % 2) : int(random() % 6);
  if (kind == 0) {
    const int64_t v = int64_t(random() % 11) - 5;
    return {Dim(v), v};
  }
  if (kind == 1) {
    auto it = bindings.begin();
    std::advance(it, random() % bindings.size());
    return {Dim::symbol(it->first), it->second};
  }
  const Sample a = random_dim(random, bindings, depth - 1);
  if (kind == 5) {
    const int64_t b = 1 + int64_t(random() % 6);
    return {floor_div(a.dim, b), floor_div(a.value, b)};
  }
  const Sample b = random_dim(random, bindings, depth - 1);
  if (kind == 2) return {a.dim + b.dim, a.value + b.value};
  if (kind == 3) return {a.dim - b.dim, a.value - b.value};
  return {a.dim * b.dim, a.value * b.value};
}

TEST(Dim, RandomExpressions) {
  std::mt19937 random(1);
  const SymbolBindings bindings = {{"a", 3}, {"b", -2}, {"c", 17}};
  int symbolic = 0;
  for (int round = 0; round < 3000; ++round) {
    const Sample s = random_dim(random, bindings, 4);
    symbolic += !s.dim.is_static();
    ASSERT_EQ(s.dim.evaluate(bindings), s.value) << s.dim.to_string();
    const Dim back = Dim::parse(s.dim.to_string());
    ASSERT_EQ(back, s.dim) << s.dim.to_string();
    ASSERT_EQ(back.to_string(), s.dim.to_string());
    ASSERT_EQ(back.hash(), s.dim.hash());
    // Piecewise substitution is the whole one.
    const Dim part = s.dim.substitute({{"b", -2}}).substitute({{"a", 3}});
    ASSERT_EQ(part.evaluate(bindings), s.value);
    const Sample t = random_dim(random, bindings, 3);
    ASSERT_EQ(s.dim + t.dim, t.dim + s.dim);
    ASSERT_EQ(s.dim * t.dim, t.dim * s.dim);
    ASSERT_EQ(s.dim - t.dim, Dim(-1) * (t.dim - s.dim));
  }
  EXPECT_GT(symbolic, 1000);
}

TEST(Dim, ExactDivision) {
  EXPECT_EQ(exact_div(Dim(12), Dim(4)), Dim(3));
  EXPECT_FALSE(exact_div(Dim(12), Dim(5)));
  EXPECT_FALSE(exact_div(n, Dim(0)));
  EXPECT_EQ(exact_div(Dim(0), n), Dim(0));
  EXPECT_EQ(exact_div(Dim(-1) * n, Dim(-1)), n);
  EXPECT_EQ(exact_div(Dim(6) * n + Dim(4), Dim(2)), Dim(3) * n + Dim(2));
  EXPECT_FALSE(exact_div(Dim(6) * n + Dim(3), Dim(2)));
  EXPECT_EQ(exact_div(n * m * k, k * n), m);
  EXPECT_FALSE(exact_div(n, m));
  EXPECT_FALSE(exact_div(n, n * n));
  EXPECT_FALSE(exact_div(n, Dim(2) * n));
  EXPECT_FALSE(exact_div(n * n + Dim(1), n + Dim(1)));
  EXPECT_EQ(exact_div(n * floor_div(m, 2), floor_div(m, 2)), n);
  EXPECT_THROW(exact_div(Dim(INT64_MIN), Dim(-1)), Error);
  std::mt19937 random(2);
  const SymbolBindings bindings = {{"a", 3}, {"b", -2}, {"c", 17}};
  for (int round = 0; round < 2000; ++round) {
    const Dim a = random_dim(random, bindings, 3).dim, b = random_dim(random, bindings, 3).dim;
    if (b.is(0)) continue;
    const auto q = exact_div(a * b, b);
    ASSERT_TRUE(q) << a.to_string() << " times " << b.to_string();
    ASSERT_EQ(*q, a);
  }
}

TEST(Dim, ExtremeCoefficients) {
  const Dim least(INT64_MIN);
  for (const Dim& d : {least, least * n, n + least * m, m + least, Dim(INT64_MAX) * n}) {
    EXPECT_EQ(Dim::parse(d.to_string()), d) << d.to_string();
  }
  EXPECT_EQ((least * n).to_string(), "-9223372036854775808*n");
  EXPECT_EQ(floor_div(least * n, 3).evaluate({{"n", 1}}), floor_div(INT64_MIN, int64_t(3)));
  EXPECT_EQ(floor_div(n, INT64_MAX).evaluate({{"n", -1}}), -1);
  for (const auto& f :
       {std::function<void()>([&] { least* Dim(-1); }),
        std::function<void()>([&] { least* n - n; }),
        std::function<void()>([&] { Dim(INT64_MAX) + Dim(1); }), std::function<void()>([&] {
          (n * n).evaluate({{"n", INT64_MAX}});
        })}) {
    EXPECT_NE(message(f).find("exceeds 64 bits"), std::string::npos);
  }
  EXPECT_THROW(floor_div(n, 0), Error);
  EXPECT_THROW(floor_div(n, -1), Error);
}

TEST(Dim, Parsing) {
  EXPECT_EQ(Dim::parse(" ( n+1 ) * -2 - -m "), Dim(-2) * n - Dim(2) + m);
  EXPECT_EQ(Dim::parse("--3"), Dim(3));
  EXPECT_EQ(Dim::parse("-floor(-n, 2)"), Dim(0) - floor_div(Dim(0) - n, 2));
  EXPECT_EQ(Dim::parse("-9223372036854775808"), Dim(INT64_MIN));
  for (const char* bad : {"",
                          " ",
                          "n n",
                          "n +",
                          "2n",
                          "(n",
                          "n)",
                          "floor(n)",
                          "floor(n, m)",
                          "floor(n, 0)",
                          "floor(n, -2)",
                          "floor",
                          "n*",
                          "*n",
                          "9223372036854775808",
                          "-9223372036854775809",
                          "n\n",
                          "[n]",
                          "n/2",
                          "\xFF"}) {
    EXPECT_THROW(Dim::parse(bad), Error) << bad;
  }
}

TEST(Dim, GrowthIsBounded) {
  EXPECT_NE(message([] {
              Dim d = n;
              for (int i = 0; i < 100; ++i) d = d * n;
            }).find("degree above 32"),
            std::string::npos);
  EXPECT_NE(message([] {
              Dim d = n;
              for (int i = 0; i < 1000; ++i) d = d + Dim::symbol("s" + std::to_string(i));
            }).find("more than 256 terms"),
            std::string::npos);
  // Squares of nested quotients double in length.
  EXPECT_THROW(
      {
        Dim d = n;
        for (int i = 0; i < 100; ++i) d = floor_div(d * d + d, 3 + i);
      },
      Error);
  EXPECT_NE(message([] {
              Dim d = n;
              for (int i = 0; i < 100; ++i) d = floor_div(d * Dim(2) + m, 3);
            }).find("nests more than 16"),
            std::string::npos);
  EXPECT_THROW(Dim::parse(std::string(100000, '(')), Error);
  EXPECT_THROW(Dim::parse(std::string(4000, '-') + "n"), Error);
  EXPECT_THROW(Dim::parse(std::string(10000, ' ') + "n"), Error);
  std::string product = "n";
  for (int i = 0; i < 2000; ++i) product += "*n";
  EXPECT_THROW(Dim::parse(product), Error);
}

TEST(Dim, DeepestQuotientsParseBack) {
  Dim d = n;
  for (int i = 0; i < 16; ++i) d = floor_div(d * Dim(2) + m, 3);
  EXPECT_EQ(Dim::parse(d.to_string()), d);
}

TEST(Checked, Arithmetic) {
  EXPECT_EQ(checked_mul(-3, 4), -12);
  EXPECT_THROW(checked_mul(int64_t(1) << 32, int64_t(1) << 31), Error);
  EXPECT_THROW(checked_add(INT64_MAX, 1), Error);
  EXPECT_THROW(checked_sub(INT64_MIN, 1), Error);
  for (int64_t a = -9; a <= 9; ++a) {
    for (int64_t b = 1; b <= 4; ++b) {
      EXPECT_EQ(floor_div(a, b), int64_t(std::floor(double(a) / double(b))));
      EXPECT_EQ(ceil_div(a, b), int64_t(std::ceil(double(a) / double(b))));
    }
  }
  EXPECT_EQ(ceil_div(INT64_MIN, 2), INT64_MIN / 2);
  EXPECT_EQ(round_up(65, 64), 128);
  EXPECT_THROW(round_up(INT64_MAX, 64), Error);
}

TEST(Dim, TakesAnyIntegerThatFits) {
  const std::vector<int> v(3);
  EXPECT_TRUE(Dim(v.size()).is(3));
  EXPECT_TRUE(Dim(7LL).is(7));
  EXPECT_TRUE(Dim(uint8_t(9)).is(9));
  EXPECT_THROW(Dim(~uint64_t(0)), Error);
}

}  // namespace
}  // namespace rlx
