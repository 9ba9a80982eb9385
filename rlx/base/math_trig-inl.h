// Sine, cosine, tangent, their inverses and the remainder over a math policy: a body to include
// after "rlx/base/math_poly-inl.h", which explains the conventions. The policy also needs
//   P::trig_far(TrigKind, x, near)     `near` with the lanes where |x| > kTrigLimit replaced
//   P::fmod_far(mask, x, y, near)      `near` with the lanes of the mask replaced

enum class TrigKind { kSin, kCos, kTan };

// ---- Trigonometric functions
// ----------------------------------------------------------------------

// The largest |x| for the reduction below; P::trig_far computes beyond it by other means.
inline constexpr double kTrigLimit = 1e5;

// x = k pi/2 + r, |r| up to pi/4 and a little; `quadrant` holds k in its low bits.
template <class P>
struct TrigReduction {
  typename P::U quadrant;
  MathPair<P> r;
};

template <class P>
RLX_MATH_FN TrigReduction<P> trig_reduce(typename P::V x) {
  using F = MathFormat<P>;
  constexpr double kP1 = F::kF32 ? 1.57079637051 : 1.5707963267948966;
  constexpr double kP2 = F::kF32 ? -4.37113882867e-8 : 6.123233995736766e-17;
  constexpr double kP3 = F::kF32 ? -1.71512451001e-15 : -1.4973849048591698e-33;
  const auto shifted = P::fma(x, P::set(0.63661977236758134), P::set(F::kMagic));
  const auto k = shifted - P::set(F::kMagic);
  // Exact: x and k * kP1 are multiples of the unit of kP1 (or x is small) and their difference is
  // < 1.
  const auto first = P::fnma(k, P::set(kP1), x);
  const MathPair<P> second = two_product<P>(k, P::set(kP2));
  const MathPair<P> r = two_sum<P>(first, P::neg(second.hi));
  const auto low = r.lo - P::fma(k, P::set(kP3), second.lo);
  return {P::bits(shifted), fast_two_sum<P>(r.hi, low)};
}

// Error of sine on the reduced range: 2^-28.0, 2^-68.4.
template <class P>
RLX_MATH_FN MathPair<P> sin_reduced(MathPair<P> r) {
  const auto z = r.hi * r.hi;
  typename P::V p;
  if constexpr (MathFormat<P>::kF32) {
    p = horner<P>(z, -0.000195135477, 0.00833215123, -0.166666545);
  } else {
    p = horner<P>(z, -7.579892459646199e-13, 1.6058395830185183e-10, -2.5052105192560885e-8,
                  2.7557319215536985e-6, -0.00019841269841258402, 0.0083333333333333267,
                  -0.16666666666666667);
  }
  const auto low = P::fma(r.hi * z, p, r.lo * P::fnma(P::set(0.5), z, P::set(1)));
  return fast_two_sum<P>(r.hi, low);
}

// Error of cosine on the reduced range: 2^-32.7, 2^-63.3.
template <class P>
RLX_MATH_FN MathPair<P> cos_reduced(MathPair<P> r) {
  const auto z = r.hi * r.hi;
  typename P::V p;
  if constexpr (MathFormat<P>::kF32) {
    p = horner<P>(z, 2.44575819e-5, -0.00138875701, 0.0416666521);
  } else {
    p = horner<P>(z, -1.1366200346764059e-11, 2.0875864089498603e-9, -2.7557315516082515e-7,
                  2.4801587294065474e-5, -0.0013888888888882623, 0.041666666666666658);
  }
  const auto half = P::set(0.5) * z;
  const auto w = P::set(1) - half;
  const auto low = ((P::set(1) - w) - half) + P::fma(z * z, p, P::neg(r.hi * r.lo));
  return fast_two_sum<P>(w, low);
}

// sin(x + turn pi/2) for |x| <= kTrigLimit.
template <class P>
RLX_MATH_FN typename P::V sin_turned(typename P::V x, uint64_t turn) {
  constexpr int kToSign = sizeof(typename P::T) * 8 - 2;  // moves bit 1 onto the sign
  const TrigReduction<P> a = trig_reduce<P>(x);
  const auto q = P::uadd(a.quadrant, P::uset(turn));
  const auto y = P::select(P::odd(q), cos_reduced<P>(a.r).hi, sin_reduced<P>(a.r).hi);
  const auto sign = P::template shl<kToSign>(P::uand(q, P::uset(2)));
  return P::from_bits(P::uxor(P::bits(y), sign));
}

template <class P>
RLX_MATH_FN typename P::V sin_core(typename P::V x) {
  const auto near = P::select(x == P::set(0), x, sin_turned<P>(x, 0));
  return P::trig_far(TrigKind::kSin, x, near);
}

template <class P>
RLX_MATH_FN typename P::V cos_core(typename P::V x) {
  return P::trig_far(TrigKind::kCos, x, sin_turned<P>(x, 1));
}

template <class P>
RLX_MATH_FN typename P::V tan_core(typename P::V x) {
  const TrigReduction<P> a = trig_reduce<P>(x);
  const auto odd = P::odd(a.quadrant);
  const MathPair<P> s = sin_reduced<P>(a.r), c = cos_reduced<P>(a.r);
  const MathPair<P> n{P::select(odd, P::neg(c.hi), s.hi), P::select(odd, P::neg(c.lo), s.lo)};
  // Where x is 0 the sine is no divisor: its quadrant is even.
  const MathPair<P> d{P::select(odd, s.hi, c.hi), P::select(odd, s.lo, c.lo)};
  const MathPair<P> q = pair_quotient<P>(n, d);
  const auto near = P::select(x == P::set(0), x, q.hi + q.lo);
  return P::trig_far(TrigKind::kTan, x, near);
}

// base + atan(t) for |t| <= tan(pi/8) and a little, base = 0 or larger than |t|.
// (atan(t) / t - 1) / t^2 in t^2 up to 0.1717; error of atan: 2^-29.8, 2^-58.7.
template <class P>
RLX_MATH_FN MathPair<P> atan_sum(MathPair<P> base, MathPair<P> t) {
  const auto z = t.hi * t.hi;
  typename P::V p;
  if constexpr (MathFormat<P>::kF32) {
    p = horner<P>(z, -0.0625382918, 0.106708314, -0.142553515, 0.199992034, -0.333333299);
  } else {
    p = horner<P>(z, -0.018550638855255809, 0.03867946227353804, -0.050646912242485453,
                  0.058538130155314521, -0.066639619574389105, 0.076921399042109991,
                  -0.090909024932867085, 0.11111110957396061, -0.14285714283851466,
                  0.19999999999991109, -0.33333333333333326);
  }
  const MathPair<P> sum = fast_two_sum<P>(base.hi, t.hi);
  const auto low = P::fma(t.hi * z, p, t.lo);
  return fast_two_sum<P>(sum.hi, sum.lo + (base.lo + low));
}

inline constexpr double kTanPi8 = 0.41421356237309505;

// pi/4 times 1, 2 or 4 as a pair.
template <class P>
RLX_MATH_FN MathPair<P> quarter_pi(double times) {
  constexpr bool kF32 = MathFormat<P>::kF32;
  return {P::set(times * (kF32 ? 0x1.921fb6p-1 : 0x1.921fb54442d18p-1)),
          P::set(times * (kF32 ? -2.18556941434e-8 : 3.061616997868383e-17))};
}

template <class P, class M>
RLX_MATH_FN MathPair<P> pair_select(M mask, MathPair<P> yes, MathPair<P> no) {
  return {P::select(mask, yes.hi, no.hi), P::select(mask, yes.lo, no.lo)};
}

template <class P>
RLX_MATH_FN typename P::V atan_core(typename P::V x) {
  const auto zero = P::set(0), one = P::set(1);
  const auto a = clamp_max<P>(P::abs(x), 0x1p60);  // the result is pi/2 from far below that
  const auto above_low = P::set(kTanPi8) < a;
  const auto above_high = P::set(2.4142135623730951) < a;
  // atan(a), pi/4 + atan((a - 1) / (a + 1)) or pi/2 + atan(-1 / a).
  MathPair<P> n{a, zero}, d{one, zero}, base{zero, zero};
  n = pair_select<P>(above_low, two_sum<P>(a, P::neg(one)), n);
  d = pair_select<P>(above_low, two_sum<P>(a, one), d);
  base = pair_select<P>(above_low, quarter_pi<P>(1), base);
  n = pair_select<P>(above_high, MathPair<P>{P::neg(one), zero}, n);
  d = pair_select<P>(above_high, MathPair<P>{a, zero}, d);
  base = pair_select<P>(above_high, quarter_pi<P>(2), base);
  const MathPair<P> y = atan_sum<P>(base, pair_quotient<P>(n, d));
  return P::copysign(y.hi + y.lo, x);
}

// C's atan2, signed zeros and infinities included.
template <class P>
RLX_MATH_FN typename P::V atan2_core(typename P::V y, typename P::V x) {
  using F = MathFormat<P>;
  const auto zero = P::set(0), one = P::set(1), infinity = P::set(F::kInfinity);
  const auto ax = P::abs(x), ay = P::abs(y);
  const auto steep = ax < ay;
  auto large = P::select(steep, ay, ax);
  auto small = P::select(steep, ax, ay);
  // Infinite over infinite counts as 1, finite over infinite as 0, and so does 0 / 0.
  const auto infinite = large == infinity;
  small = P::select(infinite, P::select(small == infinity, one, zero), small);
  large = P::select(P::either(infinite, large == zero), one, large);
  // Powers of two keep sums from overflow and remainders from underflow.
  constexpr double kFar = F::kF32 ? 0x1p60 : 0x1p500;
  const auto factor = P::select(P::set(kFar) < large, P::set(1 / kFar),
                                P::select(large < P::set(1 / kFar), P::set(kFar), one));
  large = large * factor;
  small = small * factor;

  const auto diagonal = P::set(kTanPi8) * large < small;
  MathPair<P> n{small, zero}, d{large, zero}, base{zero, zero};
  n = pair_select<P>(diagonal, two_sum<P>(small, P::neg(large)), n);
  d = pair_select<P>(diagonal, two_sum<P>(large, small), d);
  base = pair_select<P>(diagonal, quarter_pi<P>(1), base);
  MathPair<P> r = atan_sum<P>(base, pair_quotient<P>(n, d));
  r = pair_select<P>(steep, pair_difference<P>(quarter_pi<P>(2), r), r);
  const auto left = P::copysign(one, x) < zero;
  r = pair_select<P>(left, pair_difference<P>(quarter_pi<P>(4), r), r);
  auto angle = P::copysign(r.hi + r.lo, y);
  angle = P::select(x == x, angle, x);
  return P::select(y == y, angle, y);
}

// ---- Remainder
// ------------------------------------------------------------------------------------

// C's fmod, exact. One step does where |x / y| < kFmodLimit: the quotient may round up to the next
// integer, never past it, which shows as a negative remainder. P::fmod_far does the rest, a zero
// divisor and an infinite dividend included.
template <class P>
RLX_MATH_FN typename P::V fmod_core(typename P::V x, typename P::V y) {
  constexpr double kFmodLimit = MathFormat<P>::kF32 ? 0x1p22 : 0x1p51;
  const auto ax = P::abs(x), ay = P::abs(y);
  const auto ratio = ax / ay;
  auto r = P::fnma(P::trunc(ratio), ay, ax);
  r = P::select(r < P::set(0), r + ay, r);
  r = P::select(ax < ay, ax, r);  // covers an infinite divisor
  return P::fmod_far(P::set(kFmodLimit) <= ratio, x, y, P::copysign(r, x));
}
