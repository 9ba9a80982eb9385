// Samples: calls worth testing of every op, and wrong calls with their error text. They live beside
// the op (<stem>_samples.cc) but in a library of their own, not in the product.
#pragma once

#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "rlx/ir/op.h"

namespace rlx {

// How the values of an operand are drawn. Integers and bools take what makes sense in the range.
struct Draw {
  enum Kind : uint8_t {
    kUniform,   // in [low, high)
    kSpecial,   // kUniform with NaN, +-inf, +-0, the largest, smallest and subnormal numbers mixed
                // in
    kDistinct,  // a random order of evenly spaced numbers in [low, high): no ties
    kInteger,   // whole numbers in [low, high], in any dtype
    kGiven,     // `values`, rounded to the dtype
  };
  Kind kind = kUniform;
  double low = -2, high = 2;
  std::vector<double> values{};
};

struct SampleOperand {
  DType dtype = DType::kF32;
  Dims shape;
  Draw draw{};
};

// Where a gradient check may look: the reasons are documented conventions.
enum class GradCheck : uint8_t {
  kYes,
  kConvention,  // a chosen derivative (straight-through, detached): no finite differences, but the
                // two modes must agree
  kNo,          // not differentiable there (integers, ties drawn on purpose, special values)
};

struct Sample {
  std::string name;  // unique within the op: "axis1_keep"
  Attrs attrs;
  std::vector<SampleOperand> operands;
  GradCheck grad = GradCheck::kYes;
  // Length of the longest sum behind a result element: tolerances grow with it.
  int64_t reduction = 1;
  // Results that only have a meaning up to rounding of a few ulp of the result beyond `reduction`
  // (transcendental functions): extra ulps allowed.
  double extra_ulps = 0;
  // Magnitude against which the error of a sum is judged, if it is not that of the result
  // (cancellation): |error| <= eps * (ulps) * max(|result|, scale).
  double scale = 0;
};

struct WrongCall {
  std::string name;
  Attrs attrs;
  std::vector<TensorType> operands;
  std::string error;  // a part of the message that must appear
};

struct OpSamples {
  // Fewer than a few hundred calls an op, each small; together they must exercise every enumeration
  // value, both values of every bool, every dtype of the op's line in ops.def, sizes 0, 1, a prime
  // and one large, and every accepted (enumeration value, dtype) pair.
  std::vector<Sample> (*samples)() = nullptr;
  std::vector<WrongCall> (*wrong_calls)() = nullptr;
};

#define RLX_DEFINE_SAMPLES(K)                  \
  extern const ::rlx::OpSamples k##K##Samples; \
  constinit const ::rlx::OpSamples k##K##Samples

// rlx/testing/samples.cc: reads ops.def; a built op without samples is a link error.
const OpSamples& samples_of(const OpDef& op);
// Operand arrays of a sample; the same for the same (op, sample).
std::vector<Array> draw_operands(const OpDef& op, const Sample& sample);

}  // namespace rlx
