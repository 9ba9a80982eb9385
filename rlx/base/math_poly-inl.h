// The polynomial cores of exp, log, tanh, erf and pow over a math policy, written once for every
// target. This file has no include guard, no includes and no namespace on purpose: it is a body to
// include inside a namespace, once per instruction set by the Highway kernels (functions carry the
// attributes of the instruction set that is current where they are defined), once by
// "rlx/base/math_scalar-inl.h" for plain scalars, and by GPU sources. RLX_MATH_FN, if defined,
// replaces `inline` (a GPU adds its qualifiers). Needs uint64_t.
//
// Everything is a template over a policy P that holds either one value or a vector of them:
//
//   P::T                  float or double
//   P::V, P::U, P::M      values, unsigned integers of the same width, masks
//   operators of V        + - * / and the comparisons < <= == (which give a mask)
//   set(double)           a constant, rounded to T
//   uset(uint64_t)        a constant, truncated to U
//   fma(a, b, c)          a * b + c with one rounding
//   fnma(a, b, c)         c - a * b with one rounding
//   neg abs sqrt trunc    of V
//   copysign(m, s)        |m| with the sign of s
//   select(mask, y, n)    y where the mask is set, else n
//   both either           and, or of two masks
//   bits from_bits        V to U and back
//   uadd uand uor uxor    of U
//   shl<n> shr<n>         logical shifts of U
//   odd(U)                mask of the lowest bit
//
// Arithmetic must be IEEE with subnormals, round to nearest even and without contraction. Then
// every target returns the same bits: fma is fused everywhere, and nothing depends on the lane.
//
// Coefficients are minimax (Remez) fits made for this file; comments give interval and error.

#ifndef RLX_MATH_FN
#define RLX_MATH_FN inline
#endif

template <class P>
struct MathFormat {
  static constexpr bool kF32 = sizeof(typename P::T) == 4;
  static constexpr int kMantissaBits = kF32 ? 23 : 52;
  static constexpr uint64_t kOneBits = kF32 ? 0x3F800000u : 0x3FF0000000000000u;
  static constexpr uint64_t kMantissaMask = kF32 ? 0x7FFFFFu : 0xFFFFFFFFFFFFFu;
  // Adding 1.5 * 2^mantissa rounds to an integer and leaves it in the low bits, two's complement.
  static constexpr double kMagic = kF32 ? 0x1.8p23 : 0x1.8p52;
  static constexpr double kInfinity = __builtin_inf();
  static constexpr double kNaN = __builtin_nan("");
  // ln 2 in two parts; the first has so few bits that its product with any exponent is exact.
  static constexpr double kLn2Hi = kF32 ? 0.693145751953125 : 0.6931471805601177;
  static constexpr double kLn2Lo = kF32 ? 1.42860676533e-6 : -1.7239444525614835e-13;
};

// An unevaluated sum hi + lo.
template <class P>
struct MathPair {
  typename P::V hi, lo;
};

// The value m * 2^k with integral k, kept apart so that a factor can still be applied before the
// one rounding into the subnormal range.
template <class P>
struct MathScaled {
  typename P::V m, k;
};

template <class P>
RLX_MATH_FN MathPair<P> two_sum(typename P::V a, typename P::V b) {
  const auto s = a + b;
  const auto bb = s - a;
  return {s, (a - (s - bb)) + (b - bb)};
}

// For |a| >= |b| or a = 0.
template <class P>
RLX_MATH_FN MathPair<P> fast_two_sum(typename P::V a, typename P::V b) {
  const auto s = a + b;
  return {s, b - (s - a)};
}

template <class P>
RLX_MATH_FN MathPair<P> two_product(typename P::V a, typename P::V b) {
  const auto p = a * b;
  return {p, P::fma(a, b, P::neg(p))};
}

template <class P>  // |a| >= |b|
RLX_MATH_FN MathPair<P> pair_difference(MathPair<P> a, MathPair<P> b) {
  const MathPair<P> s = fast_two_sum<P>(a.hi, P::neg(b.hi));
  return {s.hi, s.lo + (a.lo - b.lo)};
}

template <class P>
RLX_MATH_FN MathPair<P> pair_product(MathPair<P> a, MathPair<P> b) {
  const MathPair<P> p = two_product<P>(a.hi, b.hi);
  return {p.hi, P::fma(a.hi, b.lo, P::fma(a.lo, b.hi, p.lo))};
}

// n / d to about twice the precision, with one division; d finite and not zero, 1 / d normal.
template <class P>
RLX_MATH_FN MathPair<P> pair_quotient(MathPair<P> n, MathPair<P> d) {
  const auto reciprocal = P::set(1) / d.hi;
  const auto q = n.hi * reciprocal;
  const auto rest = P::fnma(q, d.lo, P::fnma(q, d.hi, n.hi) + n.lo);
  return fast_two_sum<P>(q, rest * reciprocal);
}

// Horner's rule, highest coefficient first.
template <class P, class... C>
RLX_MATH_FN typename P::V horner(typename P::V x, double top, C... rest) {
  auto r = P::set(top);
  ((r = P::fma(r, x, P::set(rest))), ...);
  return r;
}

template <class P>
RLX_MATH_FN typename P::V clamp_max(typename P::V x, double bound) {  // keeps NaN
  return P::select(P::set(bound) < x, P::set(bound), x);
}

template <class P>
RLX_MATH_FN typename P::V clamp_min(typename P::V x, double bound) {  // keeps NaN
  return P::select(x < P::set(bound), P::set(bound), x);
}

// ---- exp
// ------------------------------------------------------------------------------------------

// 2^k for integral k within the normal exponents.
template <class P>
RLX_MATH_FN typename P::V pow2(typename P::V k) {
  using F = MathFormat<P>;
  const auto field = P::template shl<F::kMantissaBits>(P::bits(k + P::set(F::kMagic)));
  return P::from_bits(P::uadd(field, P::uset(F::kOneBits)));
}

// m * 2^k with one rounding; |k| up to twice the largest exponent.
template <class P>
RLX_MATH_FN typename P::V scale(MathScaled<P> s) {
  using F = MathFormat<P>;
  const auto half = P::fma(s.k, P::set(0.5), P::set(F::kMagic)) - P::set(F::kMagic);
  return (s.m * pow2<P>(half)) * pow2<P>(s.k - half);
}

// (e^r - 1 - r) / r^2 on |r| <= 0.35; error of e^r - 1 relative to itself: 2^-31.9, 2^-61.6.
template <class P>
RLX_MATH_FN typename P::V exp_polynomial(typename P::V r) {
  if constexpr (MathFormat<P>::kF32) {
    return horner<P>(r, 0.000199156783, 0.00139420343, 0.0083332705, 0.0416663423, 0.166666668,
                     0.500000005);
  } else {
    return horner<P>(r, 2.0925430834235701e-9, 2.5110166050836092e-8, 2.7557239544634673e-7,
                     2.755724119902819e-6, 2.4801587364346012e-5, 0.00019841269888860298,
                     0.0013888888888864897, 0.0083333333333206666, 0.041666666666666705,
                     0.16666666666666678, 0.5);
  }
}

// x - k ln 2 as a pair, with k the nearest integer to x / ln 2.
template <class P>
struct ExpReduction {
  typename P::V k;
  MathPair<P> r;
};

template <class P>
RLX_MATH_FN ExpReduction<P> exp_reduce(MathPair<P> x) {
  using F = MathFormat<P>;
  const auto k = P::fma(x.hi, P::set(1.4426950408889634), P::set(F::kMagic)) - P::set(F::kMagic);
  const auto first = P::fnma(k, P::set(F::kLn2Hi), x.hi);  // exact
  const auto second = P::fnma(k, P::set(F::kLn2Lo), x.lo);
  const auto r = first + second;
  return {k, {r, second - (r - first)}};
}

// e^(hi + lo) for |hi| <= 150 (f32), 1000 (f64): beyond overflow and underflow on either side.
template <class P>
RLX_MATH_FN MathScaled<P> exp_scaled(MathPair<P> x) {
  const ExpReduction<P> a = exp_reduce<P>(x);
  const auto tail = P::fma(a.r.hi * a.r.hi, exp_polynomial<P>(a.r.hi), a.r.lo);
  return {P::set(1) + (a.r.hi + tail), a.k};
}

template <class P>
RLX_MATH_FN MathScaled<P> exp_scaled(typename P::V x) {
  return exp_scaled<P>(MathPair<P>{x, P::set(0)});
}

template <class P>
RLX_MATH_FN typename P::V exp_core(typename P::V x) {
  constexpr bool kF32 = MathFormat<P>::kF32;
  return scale<P>(
      exp_scaled<P>(clamp_min<P>(clamp_max<P>(x, kF32 ? 89.0 : 710.0), kF32 ? -105.0 : -746.0)));
}

template <class P>
RLX_MATH_FN typename P::V expm1_core(typename P::V x) {
  constexpr bool kF32 = MathFormat<P>::kF32;
  const auto clamped = clamp_min<P>(clamp_max<P>(x, kF32 ? 89.0 : 710.0), kF32 ? -20.0 : -40.0);
  const ExpReduction<P> a = exp_reduce<P>({clamped, P::set(0)});
  const auto tail = P::fma(a.r.hi * a.r.hi, exp_polynomial<P>(a.r.hi), a.r.lo);
  // 2^k (1 + r + tail) - 1 at half its size: 2^k itself may overflow where the result doesn't.
  const auto s = pow2<P>(a.k - P::set(1));
  const MathPair<P> sum = two_sum<P>(s - P::set(0.5), s * a.r.hi);
  const auto scaled = (sum.hi + P::fma(s, tail, sum.lo)) * P::set(2);
  const auto y = P::select(a.k == P::set(0), a.r.hi + tail, scaled);
  return P::copysign(y, x);
}

// ---- log
// ------------------------------------------------------------------------------------------

// x = m * 2^k with m in [sqrt(1/2), sqrt(2)); x positive and finite.
template <class P>
RLX_MATH_FN MathScaled<P> log_split(typename P::V x) {
  using F = MathFormat<P>;
  constexpr uint64_t kSqrtHalf = F::kF32 ? 0x3F3504F3u : 0x3FE6A09E667F3BCDu;
  constexpr double kInteger = F::kF32 ? 0x1p23 : 0x1p52;  // its low bits hold an integer
  constexpr uint64_t kIntegerBits = F::kF32 ? 0x4B000000u : 0x4330000000000000u;
  constexpr double kBias = kInteger + (F::kF32 ? 127 : 1023);
  constexpr double kLift = F::kF32 ? 25 : 54;
  const auto subnormal = x < P::set(F::kF32 ? 0x1p-126 : 0x1p-1022);
  const auto lifted = P::select(subnormal, x * P::set(F::kF32 ? 0x1p25 : 0x1p54), x);
  const auto b = P::uadd(P::bits(lifted), P::uset(F::kOneBits - kSqrtHalf));
  const auto exponent =
      P::from_bits(P::uor(P::template shr<F::kMantissaBits>(b), P::uset(kIntegerBits)));
  const auto m = P::from_bits(P::uadd(P::uand(b, P::uset(F::kMantissaMask)), P::uset(kSqrtHalf)));
  return {m, (exponent - P::set(kBias)) - P::select(subnormal, P::set(kLift), P::set(0))};
}

// ((log((1 + s) / (1 - s)) - 2s) / s^3 - 2/3) / s^2 as a function of z = s^2 up to 0.03; error of
// the logarithm relative to itself: 2^-35.9, 2^-64.9.
template <class P>
RLX_MATH_FN typename P::V log_polynomial(typename P::V z) {
  if constexpr (MathFormat<P>::kF32) {
    return horner<P>(z, 0.233179489, 0.285522605, 0.400000891);
  } else {
    return horner<P>(z, 0.13096473294036951, 0.13268564839224465, 0.1538620684519736,
                     0.18181797382304035, 0.22222222358719495, 0.28571428571066574,
                     0.40000000000000162);
  }
}

// k ln 2 + log(1 + f) + c, for |f| < 0.42 and a small correction c. With s = f / (2 + f),
// log(1 + f) = f - f^2/2 + s (f^2/2 + z (2/3 + ...)), whose leading term is exact.
template <class P>
RLX_MATH_FN typename P::V log_sum(typename P::V k, typename P::V f, typename P::V c) {
  using F = MathFormat<P>;
  const auto s = f / (P::set(2) + f);
  const auto z = s * s;
  const auto r = z * P::fma(z, log_polynomial<P>(z), P::set(2.0 / 3.0));
  const auto half_square = P::set(0.5) * f * f;
  const auto low = P::fma(s, half_square + r, P::fma(k, P::set(F::kLn2Lo), c));
  return P::fma(k, P::set(F::kLn2Hi), f - (half_square - low));
}

// The values of log at u <= 0, infinity and NaN in place of y.
template <class P>
RLX_MATH_FN typename P::V log_edges(typename P::V u, typename P::V y) {
  using F = MathFormat<P>;
  const auto zero = P::set(0);
  y = P::select(zero < u, y, P::set(F::kNaN));
  y = P::select(u == zero, P::set(-F::kInfinity), y);
  return P::select(u == P::set(F::kInfinity), u, y);
}

template <class P>
RLX_MATH_FN typename P::V log_core(typename P::V x) {
  const MathScaled<P> a = log_split<P>(x);
  return log_edges<P>(x, log_sum<P>(a.k, a.m - P::set(1), P::set(0)));
}

template <class P>
RLX_MATH_FN typename P::V log1p_core(typename P::V x) {
  const MathPair<P> u = two_sum<P>(x, P::set(1));
  const MathScaled<P> a = log_split<P>(u.hi);
  // Where 1 + x needs no scaling, x itself is f and nothing was lost.
  const auto direct = P::both(P::set(-0.29) < x, x < P::set(0.41));
  const auto f = P::select(direct, x, a.m - P::set(1));
  const auto k = P::select(direct, P::set(0), a.k);
  const auto c = P::select(direct, P::set(0), u.lo / u.hi);
  return P::copysign(log_edges<P>(u.hi, log_sum<P>(k, f, c)), x);
}

// log x to about 2^-64 (f64), 2^-35 (f32); x positive and finite.
template <class P>
RLX_MATH_FN MathPair<P> log_pair(typename P::V x) {
  using F = MathFormat<P>;
  constexpr double kTwoThirdsLo = F::kF32 ? -1.98682155172e-8 : 3.7007434154171883e-17;
  const MathScaled<P> a = log_split<P>(x);
  const auto one = P::set(1);
  const MathPair<P> s = pair_quotient<P>({a.m - one, P::set(0)}, two_sum<P>(a.m, one));
  const MathPair<P> z = pair_product<P>(s, s);
  const MathPair<P> c = fast_two_sum<P>(
      P::set(2.0 / 3.0), P::fma(z.hi, log_polynomial<P>(z.hi), P::set(kTwoThirdsLo)));
  const MathPair<P> cubic = pair_product<P>(pair_product<P>(z, s), c);
  const MathPair<P> m = fast_two_sum<P>(s.hi + s.hi, cubic.hi);
  const auto low = m.lo + ((s.lo + s.lo) + cubic.lo);
  const MathPair<P> sum = two_sum<P>(a.k * P::set(F::kLn2Hi), m.hi);
  return fast_two_sum<P>(sum.hi, sum.lo + P::fma(a.k, P::set(F::kLn2Lo), low));
}

// C's pow, edges included: pow(x, 0) and pow(1, y) are 1 even for NaN.
template <class P>
RLX_MATH_FN typename P::V pow_core(typename P::V x, typename P::V y) {
  using F = MathFormat<P>;
  const auto zero = P::set(0), one = P::set(1), infinity = P::set(F::kInfinity);
  const auto ax = P::abs(x), ay = P::abs(y);
  const MathPair<P> l = log_pair<P>(ax);
  const MathPair<P> p = two_product<P>(y, l.hi);
  const double bound = F::kF32 ? 120 : 800;
  const auto beyond = P::set(bound) < P::abs(p.hi);
  const auto hi = P::select(beyond, P::copysign(P::set(bound), p.hi), p.hi);
  const auto lo = P::select(beyond, zero, P::fma(y, l.lo, p.lo));
  auto r = scale<P>(exp_scaled<P>(MathPair<P>{hi, lo}));

  // Magnitude where |x| is 0 or infinite: by the sign of y; where y is infinite: by |x| against 1.
  const auto upward = P::select(zero < y, infinity, zero);
  const auto downward = P::select(zero < y, zero, infinity);
  r = P::select(ax == infinity, upward, r);
  r = P::select(ax == zero, downward, r);
  const auto at_infinite_y = P::select(ax == one, one, P::select(one < ax, upward, downward));
  r = P::select(ay == infinity, at_infinite_y, r);

  const auto half = y * P::set(0.5);
  const auto integral = P::trunc(y) == y;
  const auto odd = P::both(integral, P::trunc(half) < half);
  const auto odd_negative = P::both(integral, half < P::trunc(half));
  r = P::select(P::either(odd, odd_negative), P::copysign(r, x), r);
  const auto negative = P::both(x < zero, ax < infinity);
  r = P::select(negative, P::select(integral, r, P::set(F::kNaN)), r);
  r = P::select(x == x, r, x);
  r = P::select(y == y, r, y);
  return P::select(P::either(y == zero, x == one), one, r);
}

// ---- Hyperbolic tangent and logistic
// --------------------------------------------------------------

template <class P>
RLX_MATH_FN typename P::V tanh_core(typename P::V x) {
  const auto a = P::abs(x);
  const auto z = a * a;
  typename P::V p;
  // (tanh(x) / x - 1) / x^2 on |x| <= 0.625; error of tanh: 2^-32.2, 2^-60.8.
  if constexpr (MathFormat<P>::kF32) {
    p = horner<P>(z, 0.002192672, -0.00823756212, 0.0217281804, -0.0539525848, 0.133332618,
                  -0.333333327);
  } else {
    p = horner<P>(z, 6.1950339252425018e-6, -3.0551823374017631e-5, 9.1940366506137486e-5,
                  -0.00023724209685053454, 0.00058954012555923637, -0.0014557483759269517,
                  0.0035921178090061752, -0.0088632347393625106, 0.021869488499032928,
                  -0.053968253967321518, 0.13333333333332382, -0.33333333333333332);
  }
  const auto small = P::fma(a * z, p, a);
  const auto e = exp_core<P>(clamp_max<P>(a + a, 60));
  const auto large = P::set(1) - P::set(2) / (e + P::set(1));
  return P::copysign(P::select(a < P::set(0.625), small, large), x);
}

// 1 / (1 + e^-x). With e = e^-|x| both halves are a quotient by 1 + e, kept as a pair.
template <class P>
RLX_MATH_FN typename P::V sigmoid_core(typename P::V x) {
  const auto e = exp_core<P>(P::neg(P::abs(x)));
  const auto n = P::select(x < P::set(0), e, P::set(1));
  const MathPair<P> q = pair_quotient<P>({n, P::set(0)}, fast_two_sum<P>(P::set(1), e));
  return q.hi + q.lo;
}

// ---- Error function
// -------------------------------------------------------------------------------

// Where erf goes over from its series to 1 - erfc.
inline constexpr double kErfSplit = 0.75;

// erf(a) for |a| <= kErfSplit. (erf(a) / a - 1) in a^2; error of erf: 2^-29.3, 2^-60.1.
template <class P>
RLX_MATH_FN typename P::V erf_small(typename P::V a) {
  const auto z = a * a;
  typename P::V p;
  if constexpr (MathFormat<P>::kF32) {
    p = horner<P>(z, -0.00067608186, 0.00511594726, -0.0268354199, 0.112833927, -0.376126199,
                  0.128379166);
  } else {
    p = horner<P>(z, 1.1474864608207689e-8, -1.5940739664902764e-7, 1.6430765533573574e-6,
                  -1.4924201752352426e-5, 0.0001205528978796618, -0.00085483261942828736,
                  0.0052239776155048434, -0.026866170644435882, 0.11283791670952629,
                  -0.37612638903183717, 0.12837916709551257);
  }
  return P::fma(a, p, a);
}

// e^(a^2) erfc(a) for a >= kErfSplit, up to 10 (f32), 27 (f64), where erfc underflows. A polynomial
// in t = (a - 5/2) / (a + 5/2), divided by a + 5/2; relative error 2^-30.4, 2^-61.3.
template <class P>
RLX_MATH_FN typename P::V erfc_factor(typename P::V a) {
  const auto u = P::set(1) / (a + P::set(2.5));
  const auto t = P::fnma(P::set(5), u, P::set(1));
  if constexpr (MathFormat<P>::kF32) {
    return u * horner<P>(t, 0.000626614983, -0.000406024384, -0.00479985701, 0.00838617693,
                         0.0283596055, -0.17125061, 0.453914187, -0.804651861, 1.05403182);
  } else {
    return u * horner<P>(t, 2.8307861038375264e-8, -6.1999975291293004e-8, -9.4328094361639946e-8,
                         1.6471483430680447e-7, 4.5471270956539368e-7, -2.5710149224014019e-8,
                         -1.9607546301405636e-6, -2.3246136472778442e-6, 6.7526758443879096e-6,
                         1.8242529411405373e-5, -1.9531818036465259e-5, -0.000112604538964082,
                         5.8307762378845735e-5, 0.00070269369220620013, -0.00043920826499394993,
                         -0.0048187855209983438, 0.0083930443024212557, 0.028361550131906383,
                         -0.17125114524604592, 0.4539141166480975, -0.80465184943914887,
                         1.0540318203057179);
  }
}

// e^(-c x^2), c = 1 or 1/2; |x| at most 12 (f32), 31 (f64) for c = 1, or 17, 44 for c = 1/2.
template <class P>
RLX_MATH_FN MathScaled<P> gaussian(typename P::V x, double c) {
  const MathPair<P> square = two_product<P>(x, x);
  return exp_scaled<P>(MathPair<P>{square.hi * P::set(-c), square.lo * P::set(-c)});
}

template <class P>
RLX_MATH_FN typename P::V erf_core(typename P::V x) {
  const auto a = clamp_max<P>(P::abs(x), MathFormat<P>::kF32 ? 4.5 : 6.5);  // then erf rounds to 1
  const MathScaled<P> g = gaussian<P>(a, 1);
  const auto large = P::fnma(g.m * pow2<P>(g.k), erfc_factor<P>(a), P::set(1));
  return P::copysign(P::select(a < P::set(kErfSplit), erf_small<P>(a), large), x);
}

// The normal distribution function 1/2 (1 + erf(x / sqrt 2)) and x times its density, both in a
// form without cancellation in the lower tail; `cdf` is for x clamped to the range where they vary.
template <class P>
struct NormalParts {
  typename P::V x;       // clamped
  MathScaled<P> gauss;   // e^(-x^2/2)
  typename P::V tail;    // cdf(-|x|) = tail * gauss where |x| is beyond the split
  typename P::V center;  // cdf(x) near 0
  typename P::M is_center;
};

template <class P>
RLX_MATH_FN NormalParts<P> normal_parts(typename P::V x) {
  const double bound = MathFormat<P>::kF32 ? 15 : 40;
  const auto clamped = clamp_min<P>(clamp_max<P>(x, bound), -bound);
  const auto scaled = clamped * P::set(0.70710678118654752);
  const auto a = P::abs(scaled);
  return {clamped, gaussian<P>(clamped, 0.5), P::set(0.5) * erfc_factor<P>(a),
          P::fma(erf_small<P>(scaled), P::set(0.5), P::set(0.5)), a < P::set(kErfSplit)};
}
