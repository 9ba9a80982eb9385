#include "rlx/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <sstream>
#include <vector>

#include "rlx/base/error.h"

namespace rlx {
namespace {

std::vector<std::string> words(const char* line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

// Rows and columns in the order of the names; "-" throws.
constexpr const char* kNames = "bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 c64 c128";
constexpr const char* kPromotions[] = {
    "bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 c64 c128",
    "i8 i8 i16 i32 i64 i16 i32 i64 - f32 f32 f32 f64 c64 c128",
    "i16 i16 i16 i32 i64 i16 i32 i64 - f32 f32 f32 f64 c64 c128",
    "i32 i32 i32 i32 i64 i32 i32 i64 - f32 f32 f32 f64 c64 c128",
    "i64 i64 i64 i64 i64 i64 i64 i64 - f64 f64 f64 f64 c128 c128",
    "u8 i16 i16 i32 i64 u8 u16 u32 u64 f32 f32 f32 f64 c64 c128",
    "u16 i32 i32 i32 i64 u16 u16 u32 u64 f32 f32 f32 f64 c64 c128",
    "u32 i64 i64 i64 i64 u32 u32 u32 u64 f32 f32 f32 f64 c64 c128",
    "u64 - - - - u64 u64 u64 u64 f64 f64 f64 f64 c128 c128",
    "f16 f32 f32 f32 f64 f32 f32 f32 f64 f16 f32 f32 f64 c64 c128",
    "bf16 f32 f32 f32 f64 f32 f32 f32 f64 f32 bf16 f32 f64 c64 c128",
    "f32 f32 f32 f32 f64 f32 f32 f32 f64 f32 f32 f32 f64 c64 c128",
    "f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 c128 c128",
    "c64 c64 c64 c64 c128 c64 c64 c64 c128 c64 c64 c64 c128 c64 c128",
    "c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128",
};

TEST(DType, PromotionTable) {
  const auto names = words(kNames);
  ASSERT_EQ(int(names.size()), kNumDTypes);
  for (size_t i = 0; i < names.size(); ++i) {
    const auto row = words(kPromotions[i]);
    ASSERT_EQ(row.size(), names.size());
    for (size_t j = 0; j < names.size(); ++j) {
      const DType a = *parse_dtype(names[i]), b = *parse_dtype(names[j]);
      if (row[j] == "-") {
        EXPECT_THROW(promote(a, b), Error) << names[i] << " " << names[j];
      } else {
        EXPECT_EQ(to_string(promote(a, b)), row[j]) << names[i] << " " << names[j];
      }
    }
  }
}

TEST(DType, PropertiesMatchStorage) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto t = DType(i);
    EXPECT_EQ(parse_dtype(to_string(t)), t);
    EXPECT_TRUE(dtypes::kAny.contains(t));
    visit_dtype(t, [&]<class T>() {
      EXPECT_EQ(size_of(t), int64_t(sizeof(T)));
      EXPECT_EQ(dtype_of<T>, t);
      EXPECT_TRUE((std::is_same_v<T, bool>) == (class_of(t) == DTypeClass::kBool));
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
        EXPECT_TRUE(is_integer(t));
        EXPECT_EQ(std::is_signed_v<T>, class_of(t) == DTypeClass::kSigned);
      }
    });
  }
  EXPECT_FALSE(parse_dtype("float"));
  EXPECT_FALSE(parse_dtype(""));
  EXPECT_EQ(accumulation_dtype(DType::kF16), DType::kF32);
  EXPECT_EQ(accumulation_dtype(DType::kBF16), DType::kF32);
  EXPECT_EQ(accumulation_dtype(DType::kF64), DType::kF64);
  EXPECT_EQ(accumulation_dtype(DType::kI8), DType::kI64);
  EXPECT_EQ(accumulation_dtype(DType::kU32), DType::kU64);
  EXPECT_EQ(accumulation_dtype(DType::kC64), DType::kC64);
  EXPECT_EQ(accumulation_dtype(DType::kBool), DType::kBool);
  EXPECT_EQ(real_of(DType::kC64), DType::kF32);
  EXPECT_EQ(real_of(DType::kC128), DType::kF64);
  EXPECT_EQ(real_of(DType::kI8), DType::kI8);
}

TEST(DType, Sets) {
  EXPECT_EQ(dtypes::kFloats.to_string(), "f16 bf16 f32 f64");
  EXPECT_EQ(DTypeSet().to_string(), "");
  EXPECT_FALSE(dtypes::kReals.contains(DType::kC64));
  EXPECT_FALSE(dtypes::kNumbers.contains(DType::kBool));
  EXPECT_EQ(dtypes::kReals | dtypes::kComplexes, dtypes::kNumbers);
}

// A 16-bit float by its definition, apart from the code under test.
struct Format {
  int mantissa, bias;
  uint16_t (*from_double)(double);
  uint16_t (*from_float)(float);
  float (*to_float)(uint16_t);
};
const Format kFormats[] = {
    {10, 15, f16_bits_from, f16_bits_from, f16_bits_to_float},
    {7, 127, bf16_bits_from, bf16_bits_from, bf16_bits_to_float},
};

uint16_t infinity_of(const Format& f) {
  return uint16_t(((1 << (15 - f.mantissa)) - 1) << f.mantissa);
}
// The value of non-negative bits; of infinity's bits, the power of two that follows the largest.
double value_of(const Format& f, uint16_t bits) {
  const int exponent = bits >> f.mantissa, fraction = bits & ((1 << f.mantissa) - 1);
  return exponent == 0 ? std::ldexp(fraction, 1 - f.bias - f.mantissa)
                       : std::ldexp(fraction + (1 << f.mantissa), exponent - f.bias - f.mantissa);
}

TEST(Half, EveryValueRoundTrips) {
  for (const Format& f : kFormats) {
    const uint16_t inf = infinity_of(f);
    for (uint32_t b = 0; b < 65536; ++b) {
      const auto bits = uint16_t(b);
      const float v = f.to_float(bits);
      ASSERT_EQ(std::signbit(v), bits >> 15 == 1) << b;
      const auto magnitude = uint16_t(bits & 0x7FFF);
      if (magnitude > inf) {
        ASSERT_TRUE(std::isnan(v)) << b;
        for (const uint16_t back : {f.from_float(v), f.from_double(double(v))}) {
          ASSERT_GT(back & 0x7FFF, inf) << b;
          ASSERT_EQ(back >> 15, bits >> 15) << b;
        }
        continue;
      }
      if (magnitude == inf) {
        ASSERT_TRUE(std::isinf(v)) << b;
      } else {
        ASSERT_EQ(std::fabs(double(v)), value_of(f, magnitude)) << b;
      }
      ASSERT_EQ(f.from_float(v), bits) << b;
      ASSERT_EQ(f.from_double(double(v)), bits) << b;
    }
  }
}

TEST(Half, RoundsOnceToNearestEven) {
  for (const Format& f : kFormats) {
    const uint16_t inf = infinity_of(f);
    for (uint16_t b = 0; b < inf; ++b) {
      // Exact in double. One double step beside it, rounding through float would see a tie.
      const double middle = (value_of(f, b) + value_of(f, uint16_t(b + 1))) / 2;
      const auto even = uint16_t(b + (b & 1));
      for (const int sign : {0, 0x8000}) {
        const double s = sign ? -1 : 1;
        ASSERT_EQ(f.from_double(s * middle), even | sign) << b;
        ASSERT_EQ(f.from_double(s * std::nextafter(middle, 0.0)), b | sign) << b;
        ASSERT_EQ(f.from_double(s * std::nextafter(middle, 1e300)), (b + 1) | sign) << b;
        const auto narrow = float(middle);
        if (double(narrow) != middle) continue;  // below the range of float
        ASSERT_EQ(f.from_float(float(s) * narrow), even | sign) << b;
        ASSERT_EQ(f.from_float(float(s) * std::nextafter(narrow, 0.0f)), b | sign) << b;
        ASSERT_EQ(f.from_float(float(s) * std::nextafter(narrow, INFINITY)), (b + 1) | sign) << b;
      }
    }
  }
}

TEST(Half, Extremes) {
  for (const Format& f : kFormats) {
    const uint16_t inf = infinity_of(f);
    EXPECT_EQ(f.from_double(1e300), inf);
    EXPECT_EQ(f.from_double(-1e300), inf | 0x8000);
    EXPECT_EQ(f.from_double(INFINITY), inf);
    EXPECT_EQ(f.from_double(5e-324), 0);
    EXPECT_EQ(f.from_double(-5e-324), 0x8000);
    EXPECT_EQ(f.from_double(0.0), 0);
    EXPECT_EQ(f.from_double(-0.0), 0x8000);
    EXPECT_EQ(f.from_float(std::numeric_limits<float>::max()), inf);
    EXPECT_EQ(f.from_float(std::numeric_limits<float>::denorm_min()), 0);
    EXPECT_GT(f.from_double(std::nan("")), inf);
  }
}

}  // namespace
}  // namespace rlx
