// What stages are made of, for stages-inl.h: how they are called, what they read, their frames, and
// the loads and stores.

#if defined(__clang__)
#define RLX_TAIL_CALL [[clang::musttail]] return
#else
#define RLX_TAIL_CALL return
#endif

#define RLX_GROUP(V) V v0, V v1, V v2, V v3, V v4, V v5, V v6, V v7
#define RLX_EACH(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7)

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vec = hn::Vec<Tag<T>>;
template <class T>
using Run = void (*)(const Stage*, const Context*, const Slot*, size_t, Vec<T>, Vec<T>, Vec<T>,
                     Vec<T>, Vec<T>, Vec<T>, Vec<T>, Vec<T>);

// Slow in any case: what saves steps between stages is left out, and the code is smaller.
constexpr bool kOneLane = HWY_TARGET == HWY_SCALAR;

// `at`: bytes of lanes before the group.
#define RLX_STAGE_ARGS \
  const Stage *ip, const Context *ctx, const Slot *slots, size_t at, RLX_GROUP(Vec<T>)
#define RLX_GO(to)                                                                                \
  RLX_TAIL_CALL reinterpret_cast<Run<T>>((to)->run)((to), ctx, slots, at, v0, v1, v2, v3, v4, v5, \
                                                    v6, v7)
#define RLX_GO_ON             \
  at += GroupBytes<T>();      \
  if (at >= ctx->end) return; \
  RLX_GO(ctx->first)

template <class T>
HWY_INLINE size_t GroupBytes() {
  return 8 * sizeof(T) * hn::Lanes(Tag<T>());
}

HWY_INLINE const Slot& SlotAt(const Slot* slots, uint32_t offset) {
  return *reinterpret_cast<const Slot*>(reinterpret_cast<const std::byte*>(slots) + offset);
}

// Elements of type E, as many as there are lanes of type T.
template <class E, class T = E>
HWY_INLINE E* Address(const Slot& s, size_t at) {
  constexpr size_t kSize = sizeof(E), kLane = sizeof(T);
  static_assert(kSize <= kLane);
  return reinterpret_cast<E*>(s.base + ((at / (kLane / kSize)) & s.mask));
}
template <class E, class T = E>
HWY_INLINE E* Address(const Slot* slots, uint32_t offset, size_t at) {
  return Address<E, T>(SlotAt(slots, offset), at);
}

template <class T>
HWY_INLINE void StoreGroup(T* to, RLX_GROUP(Vec<T>)) {
  const Tag<T> d;
#define RLX_DO(k) hn::StoreU(v##k, d, to + k * hn::Lanes(d));
  RLX_EACH(RLX_DO)
#undef RLX_DO
}

// ---- Operands ----

// All of a run; `in(at)` is one group, which has the vectors.
template <class T, Form kForm>
struct Operand {
  struct Group {
    const T* from;
    HWY_INLINE Vec<T> operator()(size_t k) const {
      const Tag<T> d;
      return hn::LoadU(d, from + k * hn::Lanes(d));
    }
  };
  const Slot slot;
  HWY_INLINE Operand(const Slot* slots, uint32_t offset) : slot(SlotAt(slots, offset)) {}
  HWY_INLINE Group in(size_t at) const { return {Address<T>(slot, at)}; }
};

template <class T>
struct Operand<T, Form::kScalar> {
  struct Group {
    Vec<T> all;
    HWY_INLINE Vec<T> operator()(size_t) const { return all; }
  };
  const Group group;
  HWY_INLINE Operand(const Slot* slots, uint32_t offset)
      : group{hn::Set(Tag<T>(), *reinterpret_cast<const T*>(SlotAt(slots, offset).base))} {}
  HWY_INLINE Group in(size_t) const { return group; }
};

// A function of acc and as many operands as there are forms.
template <StageOp kOp, class F, Form... kForms>
struct Step {};

// A step with its operands, which the stage record names.
template <class T, class S>
struct Bound;

template <class T, StageOp kOp, class F>
struct Bound<T, Step<kOp, F>> {
  struct Group {
    HWY_INLINE Vec<T> operator()(Vec<T> v, size_t) const { return F()(Tag<T>(), v); }
  };
  HWY_INLINE Bound(const Slot*, const Stage*) {}
  HWY_INLINE Group in(size_t) const { return {}; }
};

template <class T, StageOp kOp, class F, Form kA>
struct Bound<T, Step<kOp, F, kA>> {
  using A = Operand<T, kA>;
  struct Group {
    typename A::Group a;
    HWY_INLINE Vec<T> operator()(Vec<T> v, size_t k) const { return F()(Tag<T>(), v, a(k)); }
  };
  const A a;
  HWY_INLINE Bound(const Slot* slots, const Stage* s) : a(slots, s->a) {}
  HWY_INLINE Group in(size_t at) const { return {a.in(at)}; }
};

template <class T, StageOp kOp, class F, Form kA, Form kB>
struct Bound<T, Step<kOp, F, kA, kB>> {
  using A = Operand<T, kA>;
  using B = Operand<T, kB>;
  struct Group {
    typename A::Group a;
    typename B::Group b;
    HWY_INLINE Vec<T> operator()(Vec<T> v, size_t k) const { return F()(Tag<T>(), v, a(k), b(k)); }
  };
  const A a;
  const B b;
  HWY_INLINE Bound(const Slot* slots, const Stage* s) : a(slots, s->a), b(slots, s->b) {}
  HWY_INLINE Group in(size_t at) const { return {a.in(at), b.in(at)}; }
};

// ---- The frame of most stages ----

template <class T, class S, Ends kEnds>
void RunStep(RLX_STAGE_ARGS) {
  const auto step = Bound<T, S>(slots, ip).in(at);
  if constexpr (kEnds == Ends::kLoad) {
    const auto x = Operand<T, Form::kMemory>(slots, ip->c).in(at);
#define RLX_DO(k) v##k = x(k);
    RLX_EACH(RLX_DO)
#undef RLX_DO
  }
#define RLX_DO(k) v##k = step(v##k, k);
  RLX_EACH(RLX_DO)
#undef RLX_DO
  if constexpr (kEnds == Ends::kStore) {
    StoreGroup<T>(Address<T>(slots, ip->d, at), v0, v1, v2, v3, v4, v5, v6, v7);
    RLX_GO_ON;
  } else {
    RLX_GO(ip + 1);
  }
}

// ---- Loads and stores ----

template <class T, Form kA>
void Load(RLX_STAGE_ARGS) {
  const auto a = Operand<T, kA>(slots, ip->a).in(at);
#define RLX_DO(k) v##k = a(k);
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}

template <class T>
void Store(RLX_STAGE_ARGS) {
  StoreGroup<T>(Address<T>(slots, ip->a, at), v0, v1, v2, v3, v4, v5, v6, v7);
  RLX_GO(ip + 1);
}

template <class T>
void Stream(RLX_STAGE_ARGS) {
  const Tag<T> d;
  T* to = Address<T>(slots, ip->a, at);
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
  const auto* from = reinterpret_cast<const std::byte*>(Address<T>(slots, ip->a, at)) + 2 * bytes;
  for (size_t k = 0; k < bytes; k += 64) hwy::Prefetch(from + k);
  RLX_GO(ip + 1);
}

// Of elements that are converted on their way: Half is f16 or bf16.
template <class T, class Half>
void LoadHalf(RLX_STAGE_ARGS) {
  const Tag<T> d;
  const Half* from = Address<Half, T>(slots, ip->a, at);
#define RLX_DO(k) v##k = LoadF32(d, from + k * hn::Lanes(d));
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}

template <class T, class Half>
void StoreHalf(RLX_STAGE_ARGS) {
  const Tag<T> d;
  Half* to = Address<Half, T>(slots, ip->a, at);
#define RLX_DO(k) StoreF32(v##k, d, to + k * hn::Lanes(d));
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}

template <class T, class Half>
void WidenHalf(RLX_STAGE_ARGS) {
  const Tag<T> d;
  const Half* from = Address<Half, T>(slots, ip->a, at);
  T* to = Address<T>(slots, ip->b, at);
#define RLX_DO(k) hn::StoreU(LoadF32(d, from + k * hn::Lanes(d)), d, to + k * hn::Lanes(d));
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}

// Through the machine's memory, slot a: the same conversions as for results.
template <class T, class Half>
void RoundHalf(RLX_STAGE_ARGS) {
  const Tag<T> d;
  Half* half = Address<Half, T>(slots, ip->a, at);
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
  const uint8_t* from = Address<uint8_t, T>(slots, ip->a, at);
#define RLX_DO(k) v##k = MaskOfBytes<T>(from + k * hn::Lanes(Tag<T>()));
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}

template <class T>
void StoreBool(RLX_STAGE_ARGS) {
  uint8_t* to = Address<uint8_t, T>(slots, ip->a, at);
#define RLX_DO(k) BytesOfMask<T>(v##k, to + k * hn::Lanes(Tag<T>()));
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}

template <class T>
void WidenBool(RLX_STAGE_ARGS) {
  const Tag<T> d;
  const uint8_t* from = Address<uint8_t, T>(slots, ip->a, at);
  T* to = Address<T>(slots, ip->b, at);
#define RLX_DO(k) hn::StoreU(MaskOfBytes<T>(from + k * hn::Lanes(d)), d, to + k * hn::Lanes(d));
  RLX_EACH(RLX_DO)
#undef RLX_DO
  RLX_GO(ip + 1);
}
