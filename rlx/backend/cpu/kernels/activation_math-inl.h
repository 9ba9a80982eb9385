// The activation functions as function objects over Highway vectors: for every kind K of the
// Activation op, KFn is f and KGradFn is f'. Both are
//
//   template <class D, class V> V operator()(D d, V x) const;
//
// for f32 and f64 tags. Include after "hwy/foreach_target.h"; they live in rlx::cpu::HWY_NAMESPACE.
// The formulas, with their edges, are in "rlx/base/math_activation-inl.h". A derivative is a factor
// for the upstream gradient: ReluGradFn is 1 at NaN, and Round, Floor, Ceil and Sign have 0
// everywhere (a straight-through Round is the caller's business).
//
// Every object costs compile time where it is used: instantiate per translation unit what it needs.

#if defined(RLX_BACKEND_CPU_KERNELS_ACTIVATION_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RLX_BACKEND_CPU_KERNELS_ACTIVATION_MATH_INL_H_
#undef RLX_BACKEND_CPU_KERNELS_ACTIVATION_MATH_INL_H_
#else
#define RLX_BACKEND_CPU_KERNELS_ACTIVATION_MATH_INL_H_
#endif

#include "rlx/backend/cpu/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

#define RLX_VECTOR_FUNCTION(Name, expression)                      \
  struct Name {                                                    \
    template <class D, class V>                                    \
    HWY_INLINE V operator()(D /*d*/, [[maybe_unused]] V x) const { \
      using P = VectorMath<D>;                                     \
      return expression;                                           \
    }                                                              \
  };

RLX_VECTOR_FUNCTION(GeluFn, gelu<P>(x))
RLX_VECTOR_FUNCTION(GeluApproxFn, gelu_approx<P>(x))
RLX_VECTOR_FUNCTION(SiluFn, silu<P>(x))
RLX_VECTOR_FUNCTION(ReluFn, relu<P>(x))
RLX_VECTOR_FUNCTION(SigmoidFn, sigmoid_core<P>(x))
RLX_VECTOR_FUNCTION(TanhFn, tanh_core<P>(x))
RLX_VECTOR_FUNCTION(ExpFn, exp_core<P>(x))
RLX_VECTOR_FUNCTION(LogFn, log_core<P>(x))
RLX_VECTOR_FUNCTION(SqrtFn, P::sqrt(x))
RLX_VECTOR_FUNCTION(RsqrtFn, rsqrt<P>(x))
RLX_VECTOR_FUNCTION(NegFn, P::neg(x))
RLX_VECTOR_FUNCTION(AbsFn, P::abs(x))
RLX_VECTOR_FUNCTION(SinFn, sin_core<P>(x))
RLX_VECTOR_FUNCTION(CosFn, cos_core<P>(x))
RLX_VECTOR_FUNCTION(TanFn, tan_core<P>(x))
RLX_VECTOR_FUNCTION(AtanFn, atan_core<P>(x))
RLX_VECTOR_FUNCTION(RecipFn, P::set(1) / x)
RLX_VECTOR_FUNCTION(RoundFn, P::round(x))
RLX_VECTOR_FUNCTION(FloorFn, P::floor(x))
RLX_VECTOR_FUNCTION(CeilFn, P::ceil(x))
RLX_VECTOR_FUNCTION(SignFn, sign<P>(x))
RLX_VECTOR_FUNCTION(SoftplusFn, softplus<P>(x))
RLX_VECTOR_FUNCTION(EluFn, elu<P>(x))
RLX_VECTOR_FUNCTION(ErfFn, erf_core<P>(x))
RLX_VECTOR_FUNCTION(HardSwishFn, hard_swish<P>(x))
RLX_VECTOR_FUNCTION(HardSigmoidFn, hard_sigmoid<P>(x))
RLX_VECTOR_FUNCTION(MishFn, mish<P>(x))
RLX_VECTOR_FUNCTION(SoftsignFn, softsign<P>(x))
RLX_VECTOR_FUNCTION(LogSigmoidFn, log_sigmoid<P>(x))

RLX_VECTOR_FUNCTION(GeluGradFn, gelu_grad<P>(x))
RLX_VECTOR_FUNCTION(GeluApproxGradFn, gelu_approx_grad<P>(x))
RLX_VECTOR_FUNCTION(SiluGradFn, silu_grad<P>(x))
RLX_VECTOR_FUNCTION(ReluGradFn, relu_grad<P>(x))
RLX_VECTOR_FUNCTION(SigmoidGradFn, sigmoid_grad<P>(x))
RLX_VECTOR_FUNCTION(TanhGradFn, tanh_grad<P>(x))
RLX_VECTOR_FUNCTION(ExpGradFn, exp_core<P>(x))
RLX_VECTOR_FUNCTION(LogGradFn, log_grad<P>(x))
RLX_VECTOR_FUNCTION(SqrtGradFn, sqrt_grad<P>(x))
RLX_VECTOR_FUNCTION(RsqrtGradFn, rsqrt_grad<P>(x))
RLX_VECTOR_FUNCTION(NegGradFn, P::set(-1))
RLX_VECTOR_FUNCTION(AbsGradFn, sign<P>(x))
RLX_VECTOR_FUNCTION(SinGradFn, cos_core<P>(x))
RLX_VECTOR_FUNCTION(CosGradFn, cos_grad<P>(x))
RLX_VECTOR_FUNCTION(TanGradFn, tan_grad<P>(x))
RLX_VECTOR_FUNCTION(AtanGradFn, atan_grad<P>(x))
RLX_VECTOR_FUNCTION(RecipGradFn, recip_grad<P>(x))
RLX_VECTOR_FUNCTION(RoundGradFn, P::set(0))
RLX_VECTOR_FUNCTION(FloorGradFn, P::set(0))
RLX_VECTOR_FUNCTION(CeilGradFn, P::set(0))
RLX_VECTOR_FUNCTION(SignGradFn, P::set(0))
RLX_VECTOR_FUNCTION(SoftplusGradFn, sigmoid_core<P>(x))
RLX_VECTOR_FUNCTION(EluGradFn, elu_grad<P>(x))
RLX_VECTOR_FUNCTION(ErfGradFn, erf_grad<P>(x))
RLX_VECTOR_FUNCTION(HardSwishGradFn, hard_swish_grad<P>(x))
RLX_VECTOR_FUNCTION(HardSigmoidGradFn, hard_sigmoid_grad<P>(x))
RLX_VECTOR_FUNCTION(MishGradFn, mish_grad<P>(x))
RLX_VECTOR_FUNCTION(SoftsignGradFn, softsign_grad<P>(x))
RLX_VECTOR_FUNCTION(LogSigmoidGradFn, log_sigmoid_grad<P>(x))

#undef RLX_VECTOR_FUNCTION

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#endif
