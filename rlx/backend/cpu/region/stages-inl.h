// The body of stages_<target>.cc, which names the table: RLX_STAGE_TABLE. The file is compiled with
// the flags of its instruction set, because those decide how vectors are passed. So it must not
// leave code behind that the linker might take for others: no weak symbols, hence everything in an
// anonymous namespace and no std containers.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/activation_math-inl.h"
#include "rlx/backend/cpu/kernels/convert-inl.h"
#include "rlx/backend/cpu/region/stages.h"

#if defined(__clang__)
#define RLX_TAIL_CALL [[clang::musttail]] return
#else
#define RLX_TAIL_CALL return
#endif

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu::HWY_NAMESPACE {
namespace {

using region::Context;
using region::Form;
using region::Slot;
using region::Stage;
using region::StageOp;

#define RLX_GROUP(V) V v0, V v1, V v2, V v3, V v4, V v5, V v6, V v7
#define RLX_EACH(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7)

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vec = hn::Vec<Tag<T>>;
template <class T>
using Run = void (*)(const Stage*, const Context*, size_t, Vec<T>, Vec<T>, Vec<T>, Vec<T>, Vec<T>,
                     Vec<T>, Vec<T>, Vec<T>);

#define RLX_STAGE_ARGS const Stage *ip, const Context *ctx, size_t at, RLX_GROUP(Vec<T>)
#define RLX_GO(to) \
  RLX_TAIL_CALL reinterpret_cast<Run<T>>((to)->run)((to), ctx, at, v0, v1, v2, v3, v4, v5, v6, v7)

template <class T>
HWY_INLINE T* Address(const Context* ctx, uint16_t slot, size_t at) {
  const Slot& s = ctx->slots[slot];
  return reinterpret_cast<T*>(s.base + ((at * sizeof(T)) & s.mask));
}

// An operand of a stage: vector k of the group.
template <class T, Form kForm>
struct Operand {
  const T* from;
  Vec<T> all;
  HWY_INLINE Operand(const Context* ctx, uint16_t slot, size_t at)
      : from(Address<T>(ctx, slot, at)),
        all(kForm == Form::kScalar ? hn::Set(Tag<T>(), *from) : hn::Zero(Tag<T>())) {}
  HWY_INLINE Vec<T> operator()(size_t k) const {
    const Tag<T> d;
    return kForm == Form::kScalar ? all : hn::LoadU(d, from + k * hn::Lanes(d));
  }
};

// ---- Frames of stages: no operand, one, two ----

template <class T, class F>
void Stage0(RLX_STAGE_ARGS) {
  const Tag<T> d;
#define RLX_DO(k) v##k = F()(d, v##k);
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}

template <class T, class F, Form kA>
void Stage1(RLX_STAGE_ARGS) {
  const Tag<T> d;
  const Operand<T, kA> a(ctx, ip->a, at);
#define RLX_DO(k) v##k = F()(d, v##k, a(k));
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}

template <class T, class F, Form kA, Form kB>
void Stage2(RLX_STAGE_ARGS) {
  const Tag<T> d;
  const Operand<T, kA> a(ctx, ip->a, at);
  const Operand<T, kB> b(ctx, ip->b, at);
#define RLX_DO(k) v##k = F()(d, v##k, a(k), b(k));
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}

// Larger functions, out of line and on memory: eight copies in a row would be long, and locals that
// others can see would cost the tail call.
template <class T, class F>
HWY_NOINLINE void Body(T* group) {
  const Tag<T> d;
  for (size_t k = 0; k < 8 * hn::Lanes(d); k += hn::Lanes(d)) {
    hn::StoreU(F()(d, hn::LoadU(d, group + k)), d, group + k);
  }
}

template <class T>
HWY_INLINE void StoreGroup(T* to, RLX_GROUP(Vec<T>)) {
  const Tag<T> d;
#define RLX_DO(k) hn::StoreU(v##k, d, to + k * hn::Lanes(d));
  RLX_EACH(RLX_DO)
#undef RLX_DO
}

// The machine's own memory for it is slot a.
template <class T, class F>
void StageBody(RLX_STAGE_ARGS) {
  const Tag<T> d;
  T* group = Address<T>(ctx, ip->a, at);
  StoreGroup<T>(group, v0, v1, v2, v3, v4, v5, v6, v7);
  Body<T, F>(group);
#define RLX_DO(k) v##k = hn::LoadU(d, group + k * hn::Lanes(d));
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}

// ---- Loads and stores ----

template <class T, Form kA>
void Load(RLX_STAGE_ARGS) {
  const Operand<T, kA> a(ctx, ip->a, at);
#define RLX_DO(k) v##k = a(k);
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}

template <class T>
void Store(RLX_STAGE_ARGS) {
  StoreGroup<T>(Address<T>(ctx, ip->a, at), v0, v1, v2, v3, v4, v5, v6, v7);
  RLX_GO(ip + 1);
}

template <class T>
void Stream(RLX_STAGE_ARGS) {
  const Tag<T> d;
  T* to = Address<T>(ctx, ip->a, at);
  if (HWY_LIKELY(reinterpret_cast<uintptr_t>(to) % (sizeof(T) * hn::Lanes(d)) == 0)) {
#define RLX_DO(k) hn::Stream(v##k, d, to + k * hn::Lanes(d));
    RLX_EACH(RLX_DO)
#undef RLX_DO
  } else {
    StoreGroup<T>(to, v0, v1, v2, v3, v4, v5, v6, v7);
  }
  RLX_GO(ip + 1);
}

// While a long function computes, the processor does not see far enough ahead by itself.
template <class T>
void Prefetch(RLX_STAGE_ARGS) {
  const size_t bytes = 8 * hn::Lanes(Tag<T>()) * sizeof(T);
  const auto* from = reinterpret_cast<const std::byte*>(Address<T>(ctx, ip->a, at)) + 2 * bytes;
  for (size_t k = 0; k < bytes; k += 64) hwy::Prefetch(from + k);
  RLX_GO(ip + 1);
}

// Of elements that are converted on their way: Half is f16 or bf16.
template <class T, class Half>
void LoadHalf(RLX_STAGE_ARGS) {
  const Tag<T> d;
  const Half* from = Address<Half>(ctx, ip->a, at);
#define RLX_DO(k) v##k = LoadF32(d, from + k * hn::Lanes(d));
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}

template <class T, class Half>
void StoreHalf(RLX_STAGE_ARGS) {
  const Tag<T> d;
  Half* to = Address<Half>(ctx, ip->a, at);
#define RLX_DO(k) StoreF32(v##k, d, to + k * hn::Lanes(d));
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}

template <class T, class Half>
void WidenHalf(RLX_STAGE_ARGS) {
  const Tag<T> d;
  const Half* from = Address<Half>(ctx, ip->a, at);
  T* to = Address<T>(ctx, ip->b, at);
#define RLX_DO(k) hn::StoreU(LoadF32(d, from + k * hn::Lanes(d)), d, to + k * hn::Lanes(d));
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}

// Through the machine's memory, slot a: the same conversions as for results.
template <class T, class Half>
void RoundHalf(RLX_STAGE_ARGS) {
  const Tag<T> d;
  Half* half = Address<Half>(ctx, ip->a, at);
#define RLX_DO(k)                             \
  StoreF32(v##k, d, half + k * hn::Lanes(d)); \
  v##k = LoadF32(d, half + k * hn::Lanes(d));
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}

template <class T>
HWY_INLINE Vec<T> MaskOfBytes(const uint8_t* from) {
  const Tag<T> d;
  const hn::RebindToUnsigned<Tag<T>> du;
  const hn::Rebind<uint8_t, Tag<T>> d8;
#if HWY_TARGET == HWY_SCALAR
  const auto wide = hn::Set(du, *from);
#else
  const hn::Rebind<uint32_t, Tag<T>> d32;
  const auto words = hn::PromoteTo(d32, hn::LoadU(d8, from));
  const auto wide = [&] {
    if constexpr (sizeof(T) == 4) {
      return words;
    } else {
      return hn::PromoteTo(du, words);
    }
  }();
#endif
  (void)d8;
  return hn::BitCast(d, hn::VecFromMask(du, hn::Ne(wide, hn::Zero(du))));
}

template <class T>
HWY_INLINE void BytesOfMask(Vec<T> v, uint8_t* to) {
  const hn::RebindToUnsigned<Tag<T>> du;
  const auto ones = hn::And(hn::BitCast(du, v), hn::Set(du, 1));
#if HWY_TARGET == HWY_SCALAR
  *to = uint8_t(hn::GetLane(ones));
#else
  const hn::Rebind<uint8_t, Tag<T>> d8;
  if constexpr (sizeof(T) == 4) {
    hn::StoreU(hn::U8FromU32(ones), d8, to);
  } else {
    hn::StoreU(hn::TruncateTo(d8, ones), d8, to);
  }
#endif
}

template <class T>
void LoadBool(RLX_STAGE_ARGS) {
  const uint8_t* from = Address<uint8_t>(ctx, ip->a, at);
#define RLX_DO(k) v##k = MaskOfBytes<T>(from + k * hn::Lanes(Tag<T>()));
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}

template <class T>
void StoreBool(RLX_STAGE_ARGS) {
  uint8_t* to = Address<uint8_t>(ctx, ip->a, at);
#define RLX_DO(k) BytesOfMask<T>(v##k, to + k * hn::Lanes(Tag<T>()));
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}

template <class T>
void WidenBool(RLX_STAGE_ARGS) {
  const Tag<T> d;
  const uint8_t* from = Address<uint8_t>(ctx, ip->a, at);
  T* to = Address<T>(ctx, ip->b, at);
#define RLX_DO(k) hn::StoreU(MaskOfBytes<T>(from + k * hn::Lanes(d)), d, to + k * hn::Lanes(d));
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}

// ---- Functions of vectors ----

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

// ---- Calls, and the end ----

// Code without AVX is slow while the upper halves of registers are in use. Compilers clear them at
// the end of a function, but not where vectors are handed on.
HWY_INLINE void LeaveVectors() {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  _mm256_zeroupper();
#endif
}

template <class T, bool kTo>
void Call(RLX_STAGE_ARGS) {
  const Tag<T> d;
  LeaveVectors();
  ctx->call(*ctx, ip->c, at);
  if constexpr (kTo) {
    const T* from = Address<T>(ctx, ip->b, at);
#define RLX_DO(k) v##k = hn::LoadU(d, from + k * hn::Lanes(d));
    RLX_EACH(RLX_DO)
#undef RLX_DO
  } else {
#define RLX_DO(k) v##k = hn::Zero(d);
    RLX_EACH(RLX_DO)
#undef RLX_DO
  }
  RLX_GO(ip + 1);
}

template <class T>
void Next(RLX_STAGE_ARGS) {
  (void)ip;
  at += 8 * hn::Lanes(Tag<T>());
  if (at >= ctx->end) return;
  RLX_GO(ctx->first);
}

template <class T>
void StoreNext(RLX_STAGE_ARGS) {
  StoreGroup<T>(Address<T>(ctx, ip->a, at), v0, v1, v2, v3, v4, v5, v6, v7);
  at += 8 * hn::Lanes(Tag<T>());
  if (at >= ctx->end) return;
  RLX_GO(ctx->first);
}

template <class T>
void Enter(const Context* ctx) {
  const auto zero = hn::Zero(Tag<T>());
  reinterpret_cast<Run<T>>(ctx->first->run)(ctx->first, ctx, 0, zero, zero, zero, zero, zero, zero,
                                            zero, zero);
  LeaveVectors();
  // Other threads look at the results after a barrier, which does not order such stores.
  if (ctx->streaming) hwy::FlushStream();
}

// ---- The table ----

using Any = void (*)();

template <class T>
Any Erase(Run<T> run) {
  return reinterpret_cast<Any>(run);
}

template <class T, class F>
Any One(Form a) {
  return a == Form::kMemory ? Erase<T>(Stage1<T, F, Form::kMemory>)
                            : Erase<T>(Stage1<T, F, Form::kScalar>);
}

template <class T, class F>
Any Two(Form a, Form b) {
  if (a == Form::kMemory) {
    return b == Form::kMemory ? Erase<T>(Stage2<T, F, Form::kMemory, Form::kMemory>)
                              : Erase<T>(Stage2<T, F, Form::kMemory, Form::kScalar>);
  }
  return b == Form::kMemory ? Erase<T>(Stage2<T, F, Form::kScalar, Form::kMemory>)
                            : Erase<T>(Stage2<T, F, Form::kScalar, Form::kScalar>);
}

template <class T>
Any FindMemory(StageOp op, Form a) {
  constexpr bool kF32 = sizeof(T) == 4;
  switch (op) {
    case StageOp::kLoad:
      return a == Form::kMemory ? Erase<T>(Load<T, Form::kMemory>)
                                : Erase<T>(Load<T, Form::kScalar>);
    case StageOp::kStore:
      return Erase<T>(Store<T>);
    case StageOp::kStream:
      return Erase<T>(Stream<T>);
    case StageOp::kPrefetch:
      return Erase<T>(Prefetch<T>);
    case StageOp::kLoadBool:
      return Erase<T>(LoadBool<T>);
    case StageOp::kStoreBool:
      return Erase<T>(StoreBool<T>);
    case StageOp::kWidenBool:
      return Erase<T>(WidenBool<T>);
    case StageOp::kCall:
      return Erase<T>(Call<T, false>);
    case StageOp::kCallTo:
      return Erase<T>(Call<T, true>);
    case StageOp::kNext:
      return Erase<T>(Next<T>);
    case StageOp::kStoreNext:
      return Erase<T>(StoreNext<T>);
    default:
      break;
  }
  if constexpr (kF32) {
    switch (op) {
      case StageOp::kLoadF16:
        return Erase<T>(LoadHalf<T, f16>);
      case StageOp::kLoadBF16:
        return Erase<T>(LoadHalf<T, bf16>);
      case StageOp::kStoreF16:
        return Erase<T>(StoreHalf<T, f16>);
      case StageOp::kStoreBF16:
        return Erase<T>(StoreHalf<T, bf16>);
      case StageOp::kWidenF16:
        return Erase<T>(WidenHalf<T, f16>);
      case StageOp::kWidenBF16:
        return Erase<T>(WidenHalf<T, bf16>);
      case StageOp::kRoundF16:
        return Erase<T>(RoundHalf<T, f16>);
      case StageOp::kRoundBF16:
        return Erase<T>(RoundHalf<T, bf16>);
      default:
        break;
    }
  }
  return nullptr;
}

template <class T>
Any FindUnary(StageOp op) {
  switch (op) {
#define RLX_CASE(K)   \
  case StageOp::k##K: \
    return Erase<T>(Stage0<T, K##Fn>);
    RLX_CASE(Neg)
    RLX_CASE(Abs)
    RLX_CASE(Sqrt)
    RLX_CASE(Rsqrt)
    RLX_CASE(Recip)
    RLX_CASE(Relu)
    RLX_CASE(Floor)
    RLX_CASE(Ceil)
    RLX_CASE(Round)
    RLX_CASE(Sign)
    RLX_CASE(Square)
    RLX_CASE(MaskOne)
    RLX_CASE(NonZero)
#undef RLX_CASE
#define RLX_CASE(K)   \
  case StageOp::k##K: \
    return Erase<T>(StageBody<T, K##Fn>);
    RLX_CASE(Exp)
    RLX_CASE(Sigmoid)
    RLX_CASE(Tanh)
    RLX_CASE(Silu)
    RLX_CASE(Gelu)
    RLX_CASE(GeluApprox)
#undef RLX_CASE
    default:
      return nullptr;
  }
}

template <class T>
Any Find(StageOp op, Form a, Form b) {
  if (const Any run = FindMemory<T>(op, a)) return run;
  if (const Any run = FindUnary<T>(op)) return run;
  switch (op) {
#define RLX_CASE(K)   \
  case StageOp::k##K: \
    return One<T, K##Fn>(a);
    RLX_CASE(Add)
    RLX_CASE(Sub)
    RLX_CASE(RSub)
    RLX_CASE(Mul)
    RLX_CASE(Div)
    RLX_CASE(RDiv)
    RLX_CASE(Max)
    RLX_CASE(Min)
    RLX_CASE(Eq)
    RLX_CASE(Ne)
    RLX_CASE(Lt)
    RLX_CASE(Le)
    RLX_CASE(Gt)
    RLX_CASE(Ge)
    RLX_CASE(And)
    RLX_CASE(Or)
    RLX_CASE(Xor)
#undef RLX_CASE
    case StageOp::kReluGrad:
      return One<T, ReluGradOnFn>(a);
    case StageOp::kReluGradOf:
      return One<T, ReluGradOfFn>(a);
#define RLX_CASE(K)   \
  case StageOp::k##K: \
    return Two<T, K##Fn>(a, b);
      RLX_CASE(MulAdd)
      RLX_CASE(MulSub)
      RLX_CASE(MulRSub)
      RLX_CASE(AddMul)
      RLX_CASE(SubMul)
      RLX_CASE(RSubMul)
      RLX_CASE(Fma)
      RLX_CASE(FmaTo)
      RLX_CASE(Select)
      RLX_CASE(SelectYes)
      RLX_CASE(SelectNo)
#undef RLX_CASE
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace rlx::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace rlx::cpu::region {

extern const StageTable RLX_STAGE_TABLE;
constinit const StageTable RLX_STAGE_TABLE = {
    RLX_STAGE_NAME,
    int64_t(8 * hwy::HWY_NAMESPACE::MaxLanes(hwy::HWY_NAMESPACE::ScalableTag<float>())),
    int64_t(8 * hwy::HWY_NAMESPACE::MaxLanes(hwy::HWY_NAMESPACE::ScalableTag<double>())),
    HWY_NAMESPACE::Find<float>,
    HWY_NAMESPACE::Find<double>,
    HWY_NAMESPACE::Enter<float>,
    HWY_NAMESPACE::Enter<double>,
};

}  // namespace rlx::cpu::region
