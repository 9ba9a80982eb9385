// Every function of the CPU's vector mathematics against the C library in a wider type, on every
// instruction set of the build.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "hwy/highway.h"
#include "hwy/targets.h"
#include "rlx/base/math_scalar-inl.h"
#include "tests/unit/cpu_math_functions.h"

namespace rlx::cpu {
namespace {

struct Named {
  Fn fn;
  const char* name;
};
constexpr Named kUnary[] = {
#define RLX_NAME(Name) {Fn::k##Name, #Name}, {Fn::k##Name##Grad, #Name "Grad"},
    RLX_TEST_ACTIVATIONS(RLX_NAME)
#undef RLX_NAME
#define RLX_NAME(Name) {Fn::k##Name, #Name},
        RLX_TEST_UNARY(RLX_NAME)};
constexpr Named kBinary[] = {RLX_TEST_BINARY(RLX_NAME)};
#undef RLX_NAME

const char* name_of(Fn fn) {
  for (const Named& function : kUnary) {
    if (function.fn == fn) return function.name;
  }
  return "?";
}

// Runs `body` once for every instruction set of this build and machine.
template <class Body>
void for_each_target(const Body& body) {
  int targets = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    body(target);
    ++targets;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  EXPECT_GT(targets, 0);
}

template <class T>
std::vector<T> evaluate(Fn fn, const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> out(a.size());
  evaluate_vectors(fn, a.data(), b.data(), out.data(), a.size());
  return out;
}

template <class T>
std::vector<T> evaluate_narrow(Fn fn, const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> out(a.size());
  evaluate_narrow_vectors(fn, a.data(), b.data(), out.data(), a.size());
  return out;
}

// ---- Errors -------------------------------------------------------------------------------------

// How far a result may be from the exact value.
struct Bound {
  double ulp;            // units in its last place
  double absolute = 0;   // more, in epsilons of 1: for sums that cancel
  double tail = 0;       // more ulps per unit of its logarithm: for exponents that are rounded
  bool product = false;  // a product of x and a factor that may be subnormal
};

template <class T>
double error_in_bounds(T x, T got, Wide<T> want, Bound bound) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(want)) return std::isnan(got) ? 0 : HUGE_VAL;
  const Wide<T> largest = Limits::max();
  // Close to the overflow limit either side may overflow first.
  if (std::isinf(got) && std::fabs(want) > largest * (1 - 4 * Limits::epsilon())) {
    return std::signbit(got) == std::signbit(want) ? 0 : HUGE_VAL;
  }
  if (!std::isfinite(got)) return HUGE_VAL;
  if (std::fabs(want) > largest * (1 + 4 * Limits::epsilon())) return HUGE_VAL;
  const int exponent =
      want == 0 ? Limits::min_exponent - 1 : std::max(std::ilogb(want), Limits::min_exponent - 1);
  const Wide<T> ulp = std::ldexp(Wide<T>(1), exponent - (Limits::digits - 1));
  const Wide<T> magnitude = std::log(std::max(std::fabs(want), Wide<T>(Limits::denorm_min())));
  const Wide<T> allowed = (bound.ulp + bound.tail * std::fabs(magnitude)) * ulp +
                          bound.absolute * Limits::epsilon() +
                          (bound.product ? std::fabs(x) * Limits::denorm_min() : 0);
  const Wide<T> error = std::fabs(got - want);
  return error == 0 ? 0 : static_cast<double>(error / allowed);
}

// The promises of math-inl.h and, for the composed functions, what a sweep over millions of values
// shows, rounded up.
Bound bound_of(Fn fn) {
  switch (fn) {
    case Fn::kRelu:
    case Fn::kNeg:
    case Fn::kAbs:
    case Fn::kRound:
    case Fn::kFloor:
    case Fn::kCeil:
    case Fn::kSign:
    case Fn::kMod:
    case Fn::kReluGrad:
    case Fn::kNegGrad:
    case Fn::kAbsGrad:
    case Fn::kRoundGrad:
    case Fn::kFloorGrad:
    case Fn::kCeilGrad:
    case Fn::kSignGrad:
      return {0};
    case Fn::kSqrt:
    case Fn::kRecip:
    case Fn::kLogGrad:
    case Fn::kHardSigmoidGrad:
      return {0.5};
    case Fn::kExp:
    case Fn::kLog:
    case Fn::kLog1p:
    case Fn::kSin:
    case Fn::kCos:
    case Fn::kAtan:
    case Fn::kPow:
    case Fn::kExpGrad:
    case Fn::kSinGrad:
    case Fn::kCosGrad:
    case Fn::kElu:
    case Fn::kEluGrad:
      return {1};
    case Fn::kExpm1:
    case Fn::kTan:
    case Fn::kTanh:
    case Fn::kAtan2:
      return {1.5};
    case Fn::kHardSigmoid:
    case Fn::kHardSwishGrad:
      return {1, 0.5};
    case Fn::kErf:
    case Fn::kSigmoid:
    case Fn::kRsqrt:
    case Fn::kSqrtGrad:
    case Fn::kRsqrtGrad:
    case Fn::kTanGrad:
    case Fn::kAtanGrad:
    case Fn::kRecipGrad:
    case Fn::kSoftplus:
    case Fn::kSoftplusGrad:
    case Fn::kHardSwish:
    case Fn::kSoftsign:
    case Fn::kLogSigmoid:
    case Fn::kLogSigmoidGrad:
      return {2};
    case Fn::kErfGrad:
      return {2.5};
    case Fn::kSilu:
      return {3.5};
    case Fn::kMish:
    case Fn::kTanhGrad:
    case Fn::kSoftsignGrad:
      return {4.5};
    case Fn::kSigmoidGrad:
      return {5.5};
    case Fn::kGelu:
      return {6.5};
    case Fn::kGeluApprox:
      return {5, 0, 3};
    case Fn::kGeluApproxGrad:
      return {5, 2, 3, true};
    case Fn::kGeluGrad:
    case Fn::kSiluGrad:
    case Fn::kMishGrad:
      return {5, 2, 0, true};
  }
  throw std::logic_error("no bound");
}

template <class T>
void sweep(const Named& function, const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<Wide<T>> want(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    want[i] = reference<Wide<T>>(function.fn, a[i], b[i]);
  }
  const Bound bound = bound_of(function.fn);
  std::vector<T> first;
  for_each_target([&](int64_t) {
    const std::vector<T> got = evaluate(function.fn, a, b);
    double worst = 0;
    size_t where = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const double error = error_in_bounds<T>(a[i], got[i], want[i], bound);
      if (error > worst) worst = error, where = i;
    }
    EXPECT_LE(worst, 1) << function.name << "(" << a[where] << ", " << b[where]
                        << ") = " << got[where] << ", not " << want[where];
    // Every instruction set computes the same bits.
    if (first.empty()) first = got;
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(first[i]) && std::isnan(got[i])) continue;
      ASSERT_EQ(std::bit_cast<Bits<T>>(first[i]), std::bit_cast<Bits<T>>(got[i]))
          << function.name << "(" << a[i] << ", " << b[i] << ") differs between instruction sets";
    }
  });
}

constexpr size_t kSweepF32 = 48000;
constexpr size_t kSweepF64 = 16000;

template <class T>
void sweep_all(size_t n) {
  const std::vector<T> inputs = unary_inputs<T>(n);
  for (const Named& function : kUnary) sweep<T>(function, inputs, inputs);
  const Pairs<T> pairs = binary_inputs<T>(n);
  for (const Named& function : kBinary) sweep<T>(function, pairs.a, pairs.b);
}

TEST(CpuMath, AccuracyF32) { sweep_all<float>(kSweepF32); }
TEST(CpuMath, AccuracyF64) { sweep_all<double>(kSweepF64); }
// ---- Edges --------------------------------------------------------------------------------------

constexpr double kInf = kInfinity<double>;
constexpr double kNan = kNaN<double>;

struct Edge {
  Fn fn;
  std::vector<std::pair<double, double>> values;  // x, f(x)
};

const Edge kEdges[] = {
    {Fn::kGelu, {{0.0, 0.0}, {-0.0, -0.0}, {kInf, kInf}, {-kInf, -0.0}}},
    {Fn::kGeluApprox, {{0.0, 0.0}, {-0.0, -0.0}, {kInf, kInf}, {-kInf, -0.0}}},
    {Fn::kSilu, {{0.0, 0.0}, {-0.0, -0.0}, {kInf, kInf}, {-kInf, -0.0}}},
    {Fn::kMish, {{0.0, 0.0}, {-0.0, -0.0}, {kInf, kInf}, {-kInf, -0.0}}},
    {Fn::kRelu, {{-0.0, 0.0}, {-kInf, 0.0}, {kInf, kInf}}},
    {Fn::kSigmoid, {{0.0, 0.5}, {-0.0, 0.5}, {kInf, 1.0}, {-kInf, 0.0}}},
    {Fn::kTanh, {{0.0, 0.0}, {-0.0, -0.0}, {kInf, 1.0}, {-kInf, -1.0}}},
    {Fn::kExp, {{0.0, 1.0}, {-0.0, 1.0}, {kInf, kInf}, {-kInf, 0.0}}},
    {Fn::kLog,
     {{0.0, -kInf}, {-0.0, -kInf}, {1.0, 0.0}, {-1.0, kNan}, {-kInf, kNan}, {kInf, kInf}}},
    {Fn::kSqrt, {{0.0, 0.0}, {-0.0, -0.0}, {-1.0, kNan}, {-kInf, kNan}, {kInf, kInf}}},
    {Fn::kRsqrt, {{0.0, kInf}, {-1.0, kNan}, {kInf, 0.0}, {0.25, 2.0}}},
    {Fn::kNeg, {{0.0, -0.0}, {-0.0, 0.0}, {-kInf, kInf}}},
    {Fn::kAbs, {{-0.0, 0.0}, {-kInf, kInf}}},
    {Fn::kSin, {{0.0, 0.0}, {-0.0, -0.0}, {kInf, kNan}, {-kInf, kNan}}},
    {Fn::kCos, {{0.0, 1.0}, {-0.0, 1.0}, {kInf, kNan}, {-kInf, kNan}}},
    {Fn::kTan, {{0.0, 0.0}, {-0.0, -0.0}, {kInf, kNan}, {-kInf, kNan}}},
    {Fn::kAtan, {{-0.0, -0.0}, {kInf, std::numbers::pi / 2}, {-kInf, -std::numbers::pi / 2}}},
    {Fn::kRecip, {{0.0, kInf}, {-0.0, -kInf}, {kInf, 0.0}, {-kInf, -0.0}}},
    // 0.49999997f is where adding a half rounds up to 1.
    {Fn::kRound,
     {{0.5, 0.0},
      {1.5, 2.0},
      {2.5, 2.0},
      {-0.5, -0.0},
      {-1.5, -2.0},
      {kInf, kInf},
      {0.4999999701976776, 0.0}}},
    {Fn::kFloor, {{0.0, 0.0}, {-0.0, -0.0}, {-0.5, -1.0}, {0.5, 0.0}, {-kInf, -kInf}}},
    {Fn::kCeil, {{0.0, 0.0}, {-0.0, -0.0}, {-0.5, -0.0}, {0.5, 1.0}, {kInf, kInf}}},
    {Fn::kSign, {{0.0, 0.0}, {-0.0, 0.0}, {-kInf, -1.0}, {3.0, 1.0}}},
    {Fn::kSoftplus, {{kInf, kInf}, {-kInf, 0.0}}},
    {Fn::kElu, {{-0.0, -0.0}, {kInf, kInf}, {-kInf, -1.0}}},
    {Fn::kErf, {{0.0, 0.0}, {-0.0, -0.0}, {kInf, 1.0}, {-kInf, -1.0}}},
    {Fn::kHardSwish, {{-kInf, -0.0}, {kInf, kInf}, {1e38, 1e38}, {-3.0, -0.0}, {3.0, 3.0}}},
    {Fn::kHardSigmoid, {{-kInf, 0.0}, {kInf, 1.0}, {0.0, 0.5}, {3.0, 1.0}, {-3.0, 0.0}}},
    {Fn::kSoftsign, {{kInf, 1.0}, {-kInf, -1.0}, {-0.0, -0.0}}},
    {Fn::kLogSigmoid, {{kInf, 0.0}, {-kInf, -kInf}}},
    {Fn::kExpm1, {{0.0, 0.0}, {-0.0, -0.0}, {kInf, kInf}, {-kInf, -1.0}}},
    {Fn::kLog1p,
     {{0.0, 0.0}, {-0.0, -0.0}, {-1.0, -kInf}, {-1.5, kNan}, {kInf, kInf}, {-kInf, kNan}}},
    {Fn::kGeluGrad, {{kInf, 1.0}, {-kInf, 0.0}, {0.0, 0.5}}},
    {Fn::kGeluApproxGrad, {{kInf, 1.0}, {-kInf, 0.0}, {0.0, 0.5}}},
    {Fn::kSiluGrad, {{kInf, 1.0}, {-kInf, 0.0}, {0.0, 0.5}}},
    {Fn::kMishGrad, {{kInf, 1.0}, {-kInf, 0.0}}},
    {Fn::kReluGrad, {{0.0, 0.0}, {-0.0, 0.0}, {1.0, 1.0}, {kNan, 1.0}}},
    {Fn::kSqrtGrad, {{0.0, kInf}, {-1.0, kNan}, {kInf, 0.0}}},
    {Fn::kRsqrtGrad, {{0.0, -kInf}, {-1.0, kNan}, {1.0, -0.5}}},
    {Fn::kAbsGrad, {{0.0, 0.0}, {-0.0, 0.0}, {-2.0, -1.0}}},
    {Fn::kLogGrad, {{0.0, kInf}, {kInf, 0.0}}},
    {Fn::kAtanGrad, {{0.0, 1.0}, {kInf, 0.0}, {-kInf, 0.0}}},
    {Fn::kRecipGrad, {{0.0, -kInf}, {-0.0, -kInf}, {2.0, -0.25}}},
    {Fn::kTanhGrad, {{0.0, 1.0}, {kInf, 0.0}, {-kInf, 0.0}}},
    {Fn::kSigmoidGrad, {{0.0, 0.25}, {kInf, 0.0}, {-kInf, 0.0}}},
    {Fn::kErfGrad, {{kInf, 0.0}, {-kInf, 0.0}}},
    {Fn::kEluGrad, {{0.0, 1.0}, {kInf, 1.0}, {-kInf, 0.0}}},
    {Fn::kHardSwishGrad, {{-3.0, -0.5}, {3.0, 1.5}, {-kInf, 0.0}, {kInf, 1.0}}},
    {Fn::kHardSigmoidGrad, {{-3.0, 0.0}, {3.0, 0.0}, {kInf, 0.0}}},
    {Fn::kSoftsignGrad, {{0.0, 1.0}, {kInf, 0.0}}},
    {Fn::kSoftplusGrad, {{kInf, 1.0}, {-kInf, 0.0}}},
    {Fn::kLogSigmoidGrad, {{kInf, 0.0}, {-kInf, 1.0}}},
    {Fn::kRoundGrad, {{1.0, 0.0}, {0.5, 0.0}}},
};

template <class T>
void expect_same(const std::string& call, T got, T want) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << call << " = " << got;
    return;
  }
  EXPECT_EQ(got, want) << call;
  EXPECT_EQ(std::signbit(got), std::signbit(want)) << call << " has the wrong sign";
}

std::string call_text(const char* name, double a, double b) {
  return std::string(name) + "(" + std::to_string(a) + ", " + std::to_string(b) + ")";
}

template <class T>
void check_edges() {
  for (const Edge& edge : kEdges) {
    for (const auto& [x, want] : edge.values) {
      const std::vector<T> in = {static_cast<T>(x)};
      expect_same<T>(call_text(name_of(edge.fn), x, 0), evaluate(edge.fn, in, in)[0],
                     static_cast<T>(want));
    }
  }
  // Functions of two operands have the C library's edges: every pair of special values. Ordinary
  // results are left to the sweep.
  const double special[] = {0.0,  -0.0, 1.0,  -1.0, 0.5,   -0.5, 2.0,   -2.0, 3.0,
                            -3.0, 2.5,  -2.5, 1e30, -1e30, kInf, -kInf, kNan};
  for (const Named& function : kBinary) {
    for (const double a : special) {
      for (const double b : special) {
        const std::vector<T> x = {static_cast<T>(a)}, y = {static_cast<T>(b)};
        const T want = static_cast<T>(reference<Wide<T>>(function.fn, x[0], y[0]));
        const bool ordinary = std::isnormal(a) && std::isnormal(b) && std::isnormal(want);
        if (ordinary && std::fabs(want) != 1) continue;
        expect_same<T>(call_text(function.name, a, b), evaluate(function.fn, x, y)[0], want);
      }
    }
  }
}

TEST(CpuMath, Edges) {
  for_each_target([](int64_t) {
    check_edges<float>();
    check_edges<double>();
  });
}

template <class T>
void check_nan() {
  const std::vector<T> nan = {kNaN<T>, -kNaN<T>};
  for (const Named& function : kUnary) {
    // Derivatives that are constant between kinks don't look at x.
    const Fn fn = function.fn;
    if (fn == Fn::kReluGrad || fn == Fn::kNegGrad || fn == Fn::kRoundGrad || fn == Fn::kFloorGrad ||
        fn == Fn::kCeilGrad || fn == Fn::kSignGrad || fn == Fn::kHardSigmoidGrad) {
      continue;
    }
    for (const T y : evaluate(fn, nan, nan))
      EXPECT_TRUE(std::isnan(y)) << function.name << " " << y;
  }
}

TEST(CpuMath, NanGivesNan) {
  for_each_target([](int64_t) {
    check_nan<float>();
    check_nan<double>();
  });
}

// ---- Lanes --------------------------------------------------------------------------------------

template <class T>
void expect_equal_bits(const std::vector<T>& a, const std::vector<T>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    ASSERT_EQ(std::bit_cast<Bits<T>>(a[i]), std::bit_cast<Bits<T>>(b[i])) << what << " at " << i;
  }
}

// Results in another lane, with other neighbours (far values among them), in a tail and in narrow
// vectors are those of the plain order.
template <class T>
void check_lanes() {
  Pairs<T> pairs = binary_inputs<T>(400);
  for (const double far : {1e6, -3e7, 1e30, kInf, kNan}) pairs.push(static_cast<T>(far), T(3));
  const size_t n = pairs.a.size();
  std::vector<Named> functions(std::begin(kUnary), std::end(kUnary));
  functions.insert(functions.end(), std::begin(kBinary), std::end(kBinary));
  for (const Named& function : functions) {
    const std::vector<T> plain = evaluate(function.fn, pairs.a, pairs.b);
    for (const size_t shift : {1, 2, 5, 11}) {
      std::vector<T> a, b, want;
      for (size_t i = 0; i < n - shift; ++i) {
        const size_t from = (i * 7 + shift) % n;
        a.push_back(pairs.a[from]);
        b.push_back(pairs.b[from]);
        want.push_back(plain[from]);
      }
      expect_equal_bits(evaluate(function.fn, a, b), want, function.name);
    }
  }
  for (const Fn fn : {Fn::kGelu, Fn::kSin, Fn::kLog1p, Fn::kPow, Fn::kMod}) {
    expect_equal_bits(evaluate_narrow(fn, pairs.a, pairs.b), evaluate(fn, pairs.a, pairs.b),
                      "narrow vectors");
  }
}

TEST(CpuMath, LanesAreIndependent) {
  for_each_target([](int64_t) {
    check_lanes<float>();
    check_lanes<double>();
  });
}

// ---- The scalar policy --------------------------------------------------------------------------

template <class T>
void check_scalar() {
  using P = ScalarMath<T>;
  const Pairs<T> pairs = binary_inputs<T>(2000);
  const auto expect = [&](Fn fn, auto scalar) {
    std::vector<T> got(pairs.a.size());
    for (size_t i = 0; i < got.size(); ++i) got[i] = scalar(pairs.a[i], pairs.b[i]);
    expect_equal_bits(got, evaluate(fn, pairs.a, pairs.b), "scalar");
  };
  expect(Fn::kGelu, [](T a, T) { return gelu<P>(a); });
  expect(Fn::kMishGrad, [](T a, T) { return mish_grad<P>(a); });
  expect(Fn::kTan, [](T a, T) { return tan_core<P>(a); });
  expect(Fn::kLog1p, [](T a, T) { return log1p_core<P>(a); });
  expect(Fn::kAtan2, [](T a, T b) { return atan2_core<P>(a, b); });
  expect(Fn::kPow, [](T a, T b) { return pow_core<P>(a, b); });
  expect(Fn::kMod, [](T a, T b) { return fmod_core<P>(a, b); });
}

TEST(CpuMath, ScalarPolicyHasTheSameBits) {
  check_scalar<float>();
  check_scalar<double>();
}

// A change of flags must not shrink these tests silently; the build says which targets it leaves
// out.
TEST(CpuMath, TestsCoverTheTargets) {
  int64_t seen = 0;
  for_each_target([&](int64_t target) { seen |= target; });
  const int64_t wanted =
      HWY_SCALAR | (hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3_DL) & ~HWY_DISABLED_TARGETS);
  EXPECT_EQ(seen & wanted, wanted);
}

}  // namespace
}  // namespace rlx::cpu
