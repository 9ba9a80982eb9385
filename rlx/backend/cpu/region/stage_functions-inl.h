// The functions of single stages, for stages-inl.h; those of activations are in
// "rlx/backend/cpu/kernels/activation_math-inl.h".

template <class D>
HWY_INLINE hn::Mask<D> ToMask(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  return hn::RebindMask(d, hn::Ne(hn::BitCast(du, v), hn::Zero(du)));
}

#define RLX_FUNCTION1(Name, expression)                        \
  struct Name {                                                \
    template <class D, class V>                                \
    HWY_INLINE V operator()([[maybe_unused]] D d, V x) const { \
      return expression;                                       \
    }                                                          \
  };
#define RLX_FUNCTION2(Name, expression)                             \
  struct Name {                                                     \
    template <class D, class V>                                     \
    HWY_INLINE V operator()([[maybe_unused]] D d, V x, V a) const { \
      return expression;                                            \
    }                                                               \
  };
#define RLX_FUNCTION3(Name, expression)                                  \
  struct Name {                                                          \
    template <class D, class V>                                          \
    HWY_INLINE V operator()([[maybe_unused]] D d, V x, V a, V b) const { \
      return expression;                                                 \
    }                                                                    \
  };

// As the kernel of Binary has it: NaN wins, -0 is below +0.
template <class V, class M>
HWY_INLINE V Choose(V x, V y, M x_wins, V tie) {
  const V chosen = hn::IfThenElse(hn::Eq(x, y), tie, hn::IfThenElse(x_wins, x, y));
  return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::IsNaN(y)), hn::Add(x, y), chosen);
}

RLX_FUNCTION2(AddFn, hn::Add(x, a))
RLX_FUNCTION2(SubFn, hn::Sub(x, a))
RLX_FUNCTION2(RSubFn, hn::Sub(a, x))
RLX_FUNCTION2(MulFn, hn::Mul(x, a))
RLX_FUNCTION2(DivFn, hn::Div(x, a))
RLX_FUNCTION2(RDivFn, hn::Div(a, x))
RLX_FUNCTION2(MaxFn, Choose(x, a, hn::Gt(x, a), hn::And(x, a)))
RLX_FUNCTION2(MinFn, Choose(x, a, hn::Lt(x, a), hn::Or(x, a)))
RLX_FUNCTION2(EqFn, hn::VecFromMask(d, hn::Eq(x, a)))
RLX_FUNCTION2(NeFn, hn::VecFromMask(d, hn::Not(hn::Eq(x, a))))
RLX_FUNCTION2(LtFn, hn::VecFromMask(d, hn::Lt(x, a)))
RLX_FUNCTION2(LeFn, hn::VecFromMask(d, hn::Le(x, a)))
RLX_FUNCTION2(GtFn, hn::VecFromMask(d, hn::Gt(x, a)))
RLX_FUNCTION2(GeFn, hn::VecFromMask(d, hn::Ge(x, a)))
RLX_FUNCTION2(AndFn, hn::And(x, a))
RLX_FUNCTION2(OrFn, hn::Or(x, a))
RLX_FUNCTION2(XorFn, hn::Xor(x, a))
RLX_FUNCTION2(ReluGradOnFn, hn::IfThenElse(hn::Le(x, hn::Zero(d)), hn::Zero(d), a))
RLX_FUNCTION2(ReluGradOfFn, hn::IfThenElse(hn::Le(a, hn::Zero(d)), hn::Zero(d), x))
RLX_FUNCTION3(MulAddFn, hn::Add(hn::Mul(x, a), b))
RLX_FUNCTION3(MulSubFn, hn::Sub(hn::Mul(x, a), b))
RLX_FUNCTION3(MulRSubFn, hn::Sub(b, hn::Mul(x, a)))
RLX_FUNCTION3(AddMulFn, hn::Add(x, hn::Mul(a, b)))
RLX_FUNCTION3(SubMulFn, hn::Sub(x, hn::Mul(a, b)))
RLX_FUNCTION3(RSubMulFn, hn::Sub(hn::Mul(a, b), x))
RLX_FUNCTION3(FmaFn, VectorMath<D>::fma(x, a, b))
RLX_FUNCTION3(FmaToFn, VectorMath<D>::fma(a, b, x))
RLX_FUNCTION3(SelectFn, hn::IfThenElse(ToMask(d, x), a, b))
RLX_FUNCTION3(SelectYesFn, hn::IfThenElse(ToMask(d, a), x, b))
RLX_FUNCTION3(SelectNoFn, hn::IfThenElse(ToMask(d, a), b, x))
RLX_FUNCTION1(SquareFn, hn::Mul(x, x))
RLX_FUNCTION1(MaskOneFn, hn::And(x, hn::Set(d, 1)))
RLX_FUNCTION1(NonZeroFn, hn::VecFromMask(d, hn::Not(hn::Eq(x, hn::Zero(d)))))
