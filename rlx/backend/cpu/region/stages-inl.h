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

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu::HWY_NAMESPACE {
namespace {

using region::Context;
using region::Ends;
using region::Form;
using region::Slot;
using region::Stage;
using region::StageOp;
using region::StepKey;
using Any = void (*)();

// Each needs those before it.
#include "rlx/backend/cpu/region/stage_frames-inl.h"

#include "rlx/backend/cpu/region/stage_functions-inl.h"

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
  ctx->call(*ctx, ip->c, at / sizeof(T));
  if constexpr (kTo) {
    const T* from = Address<T>(slots, ip->b, at);
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
  RLX_GO_ON;
}

template <class T>
void StoreNext(RLX_STAGE_ARGS) {
  StoreGroup<T>(Address<T>(slots, ip->a, at), v0, v1, v2, v3, v4, v5, v6, v7);
  RLX_GO_ON;
}

template <class T>
void Enter(const Context* ctx) {
  const auto zero = hn::Zero(Tag<T>());
  reinterpret_cast<Run<T>>(ctx->first->run)(ctx->first, ctx, ctx->slots, 0, zero, zero, zero, zero,
                                            zero, zero, zero, zero);
  LeaveVectors();
  // Other threads look at the results after a barrier, which does not order such stores.
  if (ctx->streaming) hwy::FlushStream();
}

// ---- The tables ----

template <class T>
Any Erase(Run<T> run) {
  return reinterpret_cast<Any>(run);
}

#include "rlx/backend/cpu/region/stage_loops-inl.h"

// Which ends a stage comes with: none, a store, or either.
constexpr int kPlain = 0, kLast = kOneLane ? 0 : 1, kAnyEnd = kOneLane ? 0 : 2;

template <class T, class S, int kSet>
Any WithEnds(Ends ends) {
  if (ends == Ends::kNone) return Erase<T>(RunStep<T, S, Ends::kNone>);
  if constexpr (kSet >= 1) {
    if (ends == Ends::kStore) return Erase<T>(RunStep<T, S, Ends::kStore>);
  }
  if constexpr (kSet >= 2) {
    if (ends == Ends::kLoad) return Erase<T>(RunStep<T, S, Ends::kLoad>);
  }
  return nullptr;
}

template <class T, StageOp kOp, class F, int kSet>
Any Zero(Ends ends) {
  return WithEnds<T, Step<kOp, F>, kSet>(ends);
}

template <class T, StageOp kOp, class F, int kSet>
Any One(Form a, Ends ends) {
  return a == Form::kMemory ? WithEnds<T, Step<kOp, F, Form::kMemory>, kSet>(ends)
                            : WithEnds<T, Step<kOp, F, Form::kScalar>, kSet>(ends);
}

template <class T, StageOp kOp, class F, int kSet>
Any Two(Form a, Form b, Ends ends) {
  constexpr Form kM = Form::kMemory, kS = Form::kScalar;
  if (a == kM) {
    return b == kM ? WithEnds<T, Step<kOp, F, kM, kM>, kSet>(ends)
                   : WithEnds<T, Step<kOp, F, kM, kS>, kSet>(ends);
  }
  return b == kM ? WithEnds<T, Step<kOp, F, kS, kM>, kSet>(ends)
                 : WithEnds<T, Step<kOp, F, kS, kS>, kSet>(ends);
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
Any FindUnary(StageOp op, Ends ends) {
  switch (op) {
#define RLX_CASE(K, kSet) \
  case StageOp::k##K:     \
    return Zero<T, StageOp::k##K, K##Fn, kSet>(ends);
    RLX_CASE(Neg, kAnyEnd)
    RLX_CASE(Abs, kAnyEnd)
    RLX_CASE(Sqrt, kLast)
    RLX_CASE(Rsqrt, kPlain)
    RLX_CASE(Recip, kPlain)
    RLX_CASE(Relu, kAnyEnd)
    RLX_CASE(Floor, kPlain)
    RLX_CASE(Ceil, kPlain)
    RLX_CASE(Round, kPlain)
    RLX_CASE(Sign, kPlain)
    RLX_CASE(Square, kAnyEnd)
    RLX_CASE(MaskOne, kLast)
    RLX_CASE(NonZero, kPlain)
    RLX_CASE(Exp, kPlain)
    RLX_CASE(Sigmoid, kPlain)
    RLX_CASE(Tanh, kPlain)
    RLX_CASE(Silu, kPlain)
    RLX_CASE(Gelu, kPlain)
    RLX_CASE(GeluApprox, kPlain)
#undef RLX_CASE
    default:
      return nullptr;
  }
}

template <class T>
Any FindBinary(StageOp op, Form a, Ends ends) {
  switch (op) {
#define RLX_CASE(K, kSet) \
  case StageOp::k##K:     \
    return One<T, StageOp::k##K, K##Fn, kSet>(a, ends);
    RLX_CASE(Add, kAnyEnd)
    RLX_CASE(Sub, kAnyEnd)
    RLX_CASE(RSub, kAnyEnd)
    RLX_CASE(Mul, kAnyEnd)
    RLX_CASE(Div, kAnyEnd)
    RLX_CASE(RDiv, kPlain)
    RLX_CASE(Max, kAnyEnd)
    RLX_CASE(Min, kAnyEnd)
    RLX_CASE(Eq, kPlain)
    RLX_CASE(Ne, kPlain)
    RLX_CASE(Lt, kPlain)
    RLX_CASE(Le, kPlain)
    RLX_CASE(Gt, kPlain)
    RLX_CASE(Ge, kPlain)
    RLX_CASE(And, kPlain)
    RLX_CASE(Or, kPlain)
    RLX_CASE(Xor, kPlain)
    RLX_CASE(ReluGradOn, kAnyEnd)
    RLX_CASE(ReluGradOf, kAnyEnd)
#undef RLX_CASE
    default:
      return nullptr;
  }
}

template <class T>
Any FindTernary(StageOp op, Form a, Form b, Ends ends) {
  switch (op) {
#define RLX_CASE(K, kSet) \
  case StageOp::k##K:     \
    return Two<T, StageOp::k##K, K##Fn, kSet>(a, b, ends);
    RLX_CASE(MulAdd, kAnyEnd)
    RLX_CASE(MulSub, kAnyEnd)
    RLX_CASE(MulRSub, kAnyEnd)
    RLX_CASE(AddMul, kLast)
    RLX_CASE(SubMul, kLast)
    RLX_CASE(RSubMul, kLast)
    RLX_CASE(Fma, kAnyEnd)
    RLX_CASE(FmaTo, kLast)
    RLX_CASE(Select, kPlain)
    RLX_CASE(SelectYes, kPlain)
    RLX_CASE(SelectNo, kPlain)
#undef RLX_CASE
    default:
      return nullptr;
  }
}

template <class T>
Any Find(StageOp op, Form a, Form b, Ends ends) {
  if (const Any run = FindMemory<T>(op, a)) return ends == Ends::kNone ? run : nullptr;
  if (const Any run = FindUnary<T>(op, ends)) return run;
  if (const Any run = FindBinary<T>(op, a, ends)) return run;
  return FindTernary<T>(op, a, b, ends);
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
    HWY_NAMESPACE::FindLoop<float>,
    HWY_NAMESPACE::FindLoop<double>,
    HWY_NAMESPACE::Enter<float>,
    HWY_NAMESPACE::Enter<double>,
};

}  // namespace rlx::cpu::region
