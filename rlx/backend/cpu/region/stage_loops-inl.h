// Whole programs as one loop, for stages-inl.h: the commonest chains of one or two cheap steps.
// There the way from stage to stage would take as long as the work, as long as the data is in L1.
// Longer chains and functions hide it. The bits are those of the stages: the same functions in the
// same order.

// A group passes through all steps; stage k of the program names the operands of step k.
template <class T, class... S>
struct Chain {
  struct Group {
    HWY_INLINE Vec<T> operator()(Vec<T> v, size_t) const { return v; }
  };
  HWY_INLINE Chain(const Slot*, const Stage*) {}
  HWY_INLINE Group in(size_t) const { return {}; }
};

template <class T, class First, class... Rest>
struct Chain<T, First, Rest...> {
  using A = Bound<T, First>;
  using B = Chain<T, Rest...>;
  struct Group {
    typename A::Group first;
    typename B::Group rest;
    HWY_INLINE Vec<T> operator()(Vec<T> v, size_t k) const { return rest(first(v, k), k); }
  };
  const A first;
  const B rest;
  HWY_INLINE Chain(const Slot* slots, const Stage* s) : first(slots, s), rest(slots, s + 1) {}
  HWY_INLINE Group in(size_t at) const { return {first.in(at), rest.in(at)}; }
};

// acc comes from c and goes to d of the first stage.
template <class T, class... S>
void Loop(RLX_STAGE_ARGS) {
  const Operand<T, Form::kMemory> from(slots, ip->c), to(slots, ip->d);
  const Chain<T, S...> chain(slots, ip);
  do {
    const auto x = from.in(at);
    const auto steps = chain.in(at);
#define RLX_DO(k) v##k = steps(x(k), k);
    RLX_EACH(RLX_DO)
#undef RLX_DO
    StoreGroup<T>(Address<T>(to.slot, at), v0, v1, v2, v3, v4, v5, v6, v7);
    at += GroupBytes<T>();
  } while (at < ctx->end);
}

// ---- The table ----

template <class... S>
struct Program {};
template <class... P>
struct Programs {};

// Operands in memory (M) or scalars (S).
#define RLX_STEP0(K) using K##Step = Step<StageOp::k##K, K##Fn>;
#define RLX_STEP1(K)                                      \
  using K##M = Step<StageOp::k##K, K##Fn, Form::kMemory>; \
  using K##S = Step<StageOp::k##K, K##Fn, Form::kScalar>;
#define RLX_STEP2(K)                                                      \
  using K##MM = Step<StageOp::k##K, K##Fn, Form::kMemory, Form::kMemory>; \
  using K##MS = Step<StageOp::k##K, K##Fn, Form::kMemory, Form::kScalar>; \
  using K##SM = Step<StageOp::k##K, K##Fn, Form::kScalar, Form::kMemory>; \
  using K##SS = Step<StageOp::k##K, K##Fn, Form::kScalar, Form::kScalar>;
RLX_STEP0(Relu)
RLX_STEP0(Square)
RLX_STEP1(Add)
RLX_STEP1(Sub)
RLX_STEP1(RSub)
RLX_STEP1(Mul)
RLX_STEP1(Div)
RLX_STEP1(Max)
RLX_STEP1(Min)
RLX_STEP1(ReluGradOn)
RLX_STEP1(ReluGradOf)
RLX_STEP2(MulAdd)
RLX_STEP2(MulSub)
RLX_STEP2(MulRSub)
RLX_STEP2(AddMul)
RLX_STEP2(SubMul)
RLX_STEP2(RSubMul)
RLX_STEP2(Fma)
#undef RLX_STEP2
#undef RLX_STEP1
#undef RLX_STEP0

using Loops = Programs<
    // x * a + b and its kin
    Program<MulAddMM>, Program<MulAddMS>, Program<MulAddSM>, Program<MulAddSS>, Program<MulSubMM>,
    Program<MulSubMS>, Program<MulSubSM>, Program<MulSubSS>, Program<MulRSubMM>, Program<MulRSubMS>,
    Program<MulRSubSM>, Program<MulRSubSS>, Program<FmaMM>, Program<FmaMS>, Program<FmaSM>,
    Program<FmaSS>,
    // epilogues: bias, residual, scale, relu and its gradient
    Program<AddM>, Program<AddS>, Program<SubM>, Program<SubS>, Program<RSubM>, Program<RSubS>,
    Program<MulM>, Program<MulS>, Program<DivM>, Program<DivS>, Program<MaxS>, Program<MinS>,
    Program<ReluStep>, Program<ReluGradOnM>, Program<ReluGradOfM>, Program<AddM, ReluStep>,
    Program<AddS, ReluStep>, Program<MulAddMM, ReluStep>, Program<MulAddSM, ReluStep>,
    Program<MulAddSS, ReluStep>, Program<AddM, AddM>, Program<AddS, AddM>, Program<MulAddMM, AddM>,
    Program<MulAddSS, AddM>,
    // normalization: (x - m) * s, (x + y) * s, squares of differences
    Program<SubM, MulM>, Program<SubM, MulS>, Program<SubS, MulM>, Program<SubS, MulS>,
    Program<AddM, MulM>, Program<AddM, MulS>, Program<SubM, SquareStep>, Program<SubS, SquareStep>,
    Program<MulM, MulM>, Program<MulM, MulS>, Program<MulS, MulM>,
    // a * x + b * y, as optimizers have it
    Program<MulM, AddMulMM>, Program<MulM, SubMulMM>, Program<MulS, AddMulMM>,
    Program<MulS, AddMulMS>, Program<MulS, SubMulMS>, Program<MulS, RSubMulMS>,
    Program<MulM, AddMulMS>>;

template <StageOp kOp, class F, Form... kForms>
constexpr StepKey KeyOf(Step<kOp, F, kForms...>) {
  const Form forms[] = {kForms..., Form::kMemory, Form::kMemory};
  return {kOp, forms[0], forms[1]};
}

constexpr bool Equal(const StepKey& x, const StepKey& y) {
  return x.op == y.op && x.a == y.a && x.b == y.b;
}

template <class T, class... S>
Any Try(const StepKey* steps, size_t count, Program<S...>) {
  constexpr StepKey keys[] = {KeyOf(S())...};
  if (count != sizeof...(S)) return nullptr;
  for (size_t i = 0; i < count; ++i) {
    if (!Equal(steps[i], keys[i])) return nullptr;
  }
  return Erase<T>(Loop<T, S...>);
}

template <class T, class... P>
Any TryEach(const StepKey* steps, size_t count, Programs<P...>) {
  Any found = nullptr;
  (void)((found = Try<T>(steps, count, P())) || ...);
  return found;
}

template <class T>
Any FindLoop(const StepKey* steps, size_t count) {
  if constexpr (kOneLane) {
    (void)steps;
    (void)count;
    return nullptr;
  } else {
    return TryEach<T>(steps, count, Loops());
  }
}
