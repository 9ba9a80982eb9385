// The activation functions f and their derivatives f' over a math policy: a body to include after
// "rlx/base/math_poly-inl.h" (which explains the conventions) and "rlx/base/math_trig-inl.h". The
// policy also needs P::floor, P::ceil and P::round (ties to even).
//
// NaN gives NaN for every f. At infinities the limit is returned, also where the textbook formula
// is inf * 0 (Silu, Gelu, Mish, HardSwish at -inf are -0). Lower tails keep their relative
// accuracy, a few ulp; only GeluApprox and its derivative lose about 3|2u| ulp there, by the
// rounding of the exponent.

// Beyond this |v| e^-|v| is zero, and below it `exp_scaled` is defined.
template <class P>
inline constexpr double kExpRange = MathFormat<P>::kF32 ? 150 : 1000;

template <class P>
RLX_MATH_FN MathScaled<P> exp_of_minus_abs(typename P::V v) {
  return exp_scaled<P>(P::neg(clamp_max<P>(P::abs(v), kExpRange<P>)));
}

template <class P>
RLX_MATH_FN typename P::V clamp_exp_range(typename P::V x) {
  return clamp_min<P>(clamp_max<P>(x, kExpRange<P>), -kExpRange<P>);
}

// x * sigmoid(v) where v has the sign of x.
template <class P>
RLX_MATH_FN typename P::V times_sigmoid(typename P::V x, typename P::V v) {
  const auto zero = P::set(0);
  const MathScaled<P> e = exp_of_minus_abs<P>(v);
  const auto negative = x < zero;
  const auto n = P::select(negative, clamp_min<P>(x, -kExpRange<P>) * e.m, x);
  return scale<P>({n / (P::set(1) + scale<P>(e)), P::select(negative, e.k, zero)});
}

// sigmoid(v) and its derivative.
template <class P>
struct SigmoidParts {
  typename P::V value, slope;
};

template <class P>
RLX_MATH_FN SigmoidParts<P> sigmoid_parts(typename P::V v) {
  const auto one = P::set(1);
  const auto e = exp_core<P>(P::neg(P::abs(v)));
  const auto inverse = one / (one + e);
  return {P::select(v < P::set(0), e, one) * inverse, e * inverse * inverse};
}

// ---- f
// --------------------------------------------------------------------------------------------

template <class P>
RLX_MATH_FN typename P::V gelu(typename P::V x) {
  const NormalParts<P> n = normal_parts<P>(x);
  const auto upper = x * P::fnma(n.tail, scale<P>(n.gauss), P::set(1));
  const auto lower = scale<P>({n.x * n.tail * n.gauss.m, n.gauss.k});
  return P::select(n.is_center, x * n.center, P::select(x < P::set(0), lower, upper));
}

// 2 sqrt(2 / pi) and that times 0.044715: 1 + tanh u = 2 sigmoid(2u).
inline constexpr double kGeluApprox1 = 1.5957691216057308;
inline constexpr double kGeluApprox3 = 0.071354816272600253;

template <class P>
RLX_MATH_FN typename P::V gelu_approx(typename P::V x) {
  const auto u = x * P::fma(x * x, P::set(kGeluApprox3), P::set(kGeluApprox1));
  return times_sigmoid<P>(x, u);
}

template <class P>
RLX_MATH_FN typename P::V silu(typename P::V x) {
  return times_sigmoid<P>(x, x);
}

template <class P>
RLX_MATH_FN typename P::V relu(typename P::V x) {
  return P::select(x <= P::set(0), P::set(0), x);
}

template <class P>
RLX_MATH_FN typename P::V rsqrt(typename P::V x) {
  return P::set(1) / P::sqrt(x);
}

template <class P>
RLX_MATH_FN typename P::V sign(typename P::V x) {
  const auto zero = P::set(0);
  // x + 0 is +0 for both zeros, and NaN for NaN.
  return P::select(zero < x, P::set(1), P::select(x < zero, P::set(-1), x + zero));
}

template <class P>
RLX_MATH_FN typename P::V softplus(typename P::V x) {
  const auto positive_part = P::select(x < P::set(0), P::set(0), x);
  return positive_part + log1p_core<P>(exp_core<P>(P::neg(P::abs(x))));
}

template <class P>
RLX_MATH_FN typename P::V log_sigmoid(typename P::V x) {
  const auto negative_part = P::select(P::set(0) < x, P::set(0), x);
  return negative_part - log1p_core<P>(exp_core<P>(P::neg(P::abs(x))));
}

template <class P>
RLX_MATH_FN typename P::V elu(typename P::V x) {
  return P::select(P::set(0) < x, x, expm1_core<P>(x));
}

template <class P>
RLX_MATH_FN typename P::V hard_swish(typename P::V x) {
  const auto three = P::set(3);
  const auto middle = x * (x + three) / P::set(6);
  const auto upper = P::select(three <= x, x, middle);
  return P::select(x <= P::set(-3), P::set(-0.0), upper);
}

template <class P>
RLX_MATH_FN typename P::V hard_sigmoid(typename P::V x) {
  return clamp_min<P>(clamp_max<P>((x + P::set(3)) / P::set(6), 1), 0);
}

// tanh(softplus(x)) = n / d, with w = e^-|x|: n = w (w + 2), d = n + 2 for x < 0, else
// n = 1 + 2w, d = n + 2w^2.
template <class P>
struct MishParts {
  MathScaled<P> e;
  typename P::V w, n, d;
};

template <class P>
RLX_MATH_FN MishParts<P> mish_parts(typename P::V x) {
  const auto two = P::set(2);
  const MathScaled<P> e = exp_of_minus_abs<P>(x);
  const auto w = scale<P>(e);
  const auto negative = x < P::set(0);
  const auto n = P::select(negative, w * (w + two), P::fma(two, w, P::set(1)));
  return {e, w, n, n + P::select(negative, two, two * w * w)};
}

template <class P>
RLX_MATH_FN typename P::V mish(typename P::V x) {
  const auto zero = P::set(0);
  const MishParts<P> a = mish_parts<P>(x);
  const auto negative = x < zero;
  const auto lower = clamp_min<P>(x, -kExpRange<P>) * a.e.m * (a.w + P::set(2));
  const auto n = P::select(negative, lower, x * a.n);
  return P::select(P::set(kExpRange<P>) < x, x,
                   scale<P>({n / a.d, P::select(negative, a.e.k, zero)}));
}

template <class P>
RLX_MATH_FN typename P::V softsign(typename P::V x) {
  const auto a = clamp_max<P>(P::abs(x), 0x1p100);
  return P::copysign(a / (P::set(1) + a), x);
}

// ---- f'
// -------------------------------------------------------------------------------------------

template <class P>
RLX_MATH_FN typename P::V gelu_grad(typename P::V x) {
  const NormalParts<P> n = normal_parts<P>(x);
  const auto gauss = scale<P>(n.gauss);
  const auto tail = n.tail * gauss;
  const auto outer = P::select(x < P::set(0), tail, P::set(1) - tail);
  const auto cdf = P::select(n.is_center, n.center, outer);
  return P::fma(n.x * gauss, P::set(0.3989422804014327), cdf);
}

template <class P>
RLX_MATH_FN typename P::V gelu_approx_grad(typename P::V x) {
  const auto a = clamp_min<P>(clamp_max<P>(x, 40), -40);
  const auto square = a * a;
  const SigmoidParts<P> s =
      sigmoid_parts<P>(a * P::fma(square, P::set(kGeluApprox3), P::set(kGeluApprox1)));
  const auto inner = P::fma(square, P::set(3 * kGeluApprox3), P::set(kGeluApprox1));
  return P::fma(a * inner, s.slope, s.value);
}

template <class P>
RLX_MATH_FN typename P::V silu_grad(typename P::V x) {
  const auto a = clamp_exp_range<P>(x);
  const SigmoidParts<P> s = sigmoid_parts<P>(a);
  return P::fma(a, s.slope, s.value);
}

// 1 also for NaN, so that the gradient of a NaN passes through.
template <class P>
RLX_MATH_FN typename P::V relu_grad(typename P::V x) {
  return P::select(x <= P::set(0), P::set(0), P::set(1));
}

template <class P>
RLX_MATH_FN typename P::V sigmoid_grad(typename P::V x) {
  return sigmoid_parts<P>(x).slope;
}

// 1 - tanh^2 without its cancellation.
template <class P>
RLX_MATH_FN typename P::V tanh_grad(typename P::V x) {
  const auto a = P::abs(x);
  const auto e = exp_core<P>(P::neg(a + a));
  const auto d = P::set(1) + e;
  return P::set(4) * e / (d * d);
}

template <class P>
RLX_MATH_FN typename P::V log_grad(typename P::V x) {
  return P::set(1) / x;
}

template <class P>
RLX_MATH_FN typename P::V sqrt_grad(typename P::V x) {
  return P::set(0.5) / P::sqrt(x);
}

template <class P>
RLX_MATH_FN typename P::V rsqrt_grad(typename P::V x) {
  return P::set(-0.5) / x / P::sqrt(x);
}

template <class P>
RLX_MATH_FN typename P::V cos_grad(typename P::V x) {
  return P::neg(sin_core<P>(x));
}

template <class P>
RLX_MATH_FN typename P::V tan_grad(typename P::V x) {
  const auto t = tan_core<P>(x);
  return P::fma(t, t, P::set(1));
}

template <class P>
RLX_MATH_FN typename P::V atan_grad(typename P::V x) {
  // Far out 1 / x^2, as 1 / x / x: x^2 may overflow where the result is still a subnormal.
  const auto far = P::set(MathFormat<P>::kF32 ? 0x1p20 : 0x1p40) < P::abs(x);
  const auto first = P::set(1) / P::select(far, x, P::fma(x, x, P::set(1)));
  return P::select(far, first * first, first);
}

template <class P>
RLX_MATH_FN typename P::V recip_grad(typename P::V x) {
  const auto r = P::set(1) / x;
  return P::neg(r * r);
}

template <class P>
RLX_MATH_FN typename P::V elu_grad(typename P::V x) {
  return P::select(P::set(0) < x, P::set(1), exp_core<P>(x));
}

template <class P>
RLX_MATH_FN typename P::V erf_grad(typename P::V x) {
  const double bound = MathFormat<P>::kF32 ? 12 : 31;
  const MathScaled<P> g = gaussian<P>(clamp_max<P>(P::abs(x), bound), 1);
  return scale<P>({g.m * P::set(1.1283791670955126), g.k});
}

template <class P>
RLX_MATH_FN typename P::V hard_swish_grad(typename P::V x) {
  const auto middle = P::fma(P::set(2), x, P::set(3)) / P::set(6);
  const auto upper = P::select(P::set(3) < x, P::set(1), middle);
  return P::select(x < P::set(-3), P::set(0), upper);
}

template <class P>
RLX_MATH_FN typename P::V hard_sigmoid_grad(typename P::V x) {
  return P::select(P::abs(x) < P::set(3), P::set(1.0 / 6.0), P::set(0));
}

template <class P>
RLX_MATH_FN typename P::V mish_grad(typename P::V x) {
  const auto one = P::set(1);
  const MishParts<P> a = mish_parts<P>(x);
  // (1 - tanh^2) sigmoid = 4 (1 + w) q / d^2, with q = w for x < 0, else w^2.
  const auto q = P::select(x < P::set(0), a.w, a.w * a.w);
  const auto slope = P::set(4) * (one + a.w) * q / (a.d * a.d);
  return P::fma(clamp_exp_range<P>(x), slope, a.n / a.d);
}

template <class P>
RLX_MATH_FN typename P::V softsign_grad(typename P::V x) {
  const auto r = P::set(1) / (P::set(1) + P::abs(x));
  return r * r;
}

template <class P>
RLX_MATH_FN typename P::V log_sigmoid_grad(typename P::V x) {
  return sigmoid_core<P>(P::neg(x));
}
