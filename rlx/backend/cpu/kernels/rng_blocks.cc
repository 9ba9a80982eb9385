#include "rlx/backend/cpu/kernels/rng_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/rng_blocks.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {  // other files have functions of these names

constexpr size_t kBlocks = size_t(kRngBlocks);

// Word j of every block.
struct Words {
  HWY_ALIGN uint32_t word[4][kBlocks];
};

#if HWY_TARGET == HWY_SCALAR
template <class V>
HWY_INLINE void multiply(V a, uint32_t b, V& low, V& high) {
  const uint64_t product = uint64_t(a.raw) * b;
  low = V(uint32_t(product));
  high = V(uint32_t(product >> 32));
}
#else
// Low and high halves of 32 x 32 bits: even lanes, then odd lanes shifted to even places.
template <class V>
HWY_INLINE void multiply(V a, uint32_t b, V& low, V& high) {
  const hn::DFromV<V> d;
  const hn::RepartitionToWide<decltype(d)> d64;
  const V factor = hn::Set(d, b);
  const auto even = hn::MulEven(a, factor);
  const V odd_lanes = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a)));
  const auto odd = hn::MulEven(odd_lanes, factor);
  const auto lower = hn::Set(d64, uint64_t{0xFFFFFFFF});
  low = hn::BitCast(d, hn::Or(hn::And(even, lower), hn::ShiftLeft<32>(odd)));
  high = hn::BitCast(d, hn::Or(hn::ShiftRight<32>(even), hn::AndNot(lower, odd)));
}
#endif

// The same as philox() of rlx/base/philox.h, one block a lane.
void fill_words(const RngStream& s, Words& out) {
  const hn::ScalableTag<uint32_t> d;
  HWY_ALIGN uint32_t index[2][kBlocks];
  for (size_t i = 0; i < kBlocks; ++i) {
    const uint64_t block = s.block + i;
    index[0][i] = uint32_t(block);
    index[1][i] = uint32_t(block >> 32);
  }
  for (size_t i = 0; i < kBlocks; i += hn::Lanes(d)) {
    auto c0 = hn::Load(d, index[0] + i), c1 = hn::Load(d, index[1] + i);
    auto c2 = hn::Set(d, uint32_t(s.key)), c3 = hn::Set(d, uint32_t(s.key >> 32));
    uint32_t k0 = uint32_t(s.seed), k1 = uint32_t(s.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      auto low0 = c0, high0 = c0, low1 = c0, high1 = c0;
      multiply(c0, 0xD2511F53u, low0, high0);
      multiply(c2, 0xCD9E8D57u, low1, high1);
      c0 = hn::Xor(high1, hn::Xor(c1, hn::Set(d, k0)));
      c1 = low1;
      c2 = hn::Xor(high0, hn::Xor(c3, hn::Set(d, k1)));
      c3 = low0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    hn::Store(c0, d, out.word[0] + i);
    hn::Store(c1, d, out.word[1] + i);
    hn::Store(c2, d, out.word[2] + i);
    hn::Store(c3, d, out.word[3] + i);
  }
}

template <class V>
HWY_INLINE void store_interleaved(V v0, V v1, V v2, V v3, float* to) {
#if HWY_TARGET == HWY_SCALAR
  to[0] = v0.raw;
  to[1] = v1.raw;
  to[2] = v2.raw;
  to[3] = v3.raw;
#else
  hn::StoreInterleaved4(v0, v1, v2, v3, hn::DFromV<V>(), to);
#endif
}

void uniform32(const RngStream& stream, int bits, float scale, float offset, float* to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  Words w;
  fill_words(stream, w);
  const auto unit = hn::Set(d, bits == 24 ? 0x1p-24f : bits == 11 ? 0x1p-11f : 0x1p-8f);
  const auto factor = hn::Set(d, scale), start = hn::Set(d, offset);
  const auto value = [&](size_t j, size_t i) HWY_ATTR {
    const auto word = hn::Load(du, w.word[j] + i);
    const auto top = bits == 24   ? hn::ShiftRight<8>(word)
                     : bits == 11 ? hn::ShiftRight<21>(word)
                                  : hn::ShiftRight<24>(word);
    const auto u = hn::Mul(hn::ConvertTo(d, hn::BitCast(di, top)), unit);
    return hn::Add(hn::Mul(u, factor), start);
  };
  for (size_t i = 0; i < kBlocks; i += hn::Lanes(d)) {
    store_interleaved(value(0, i), value(1, i), value(2, i), value(3, i), to + 4 * i);
  }
}

HWY_INLINE uint64_t bits53(const Words& w, int j, size_t i) {
  return (w.word[2 * j][i] | uint64_t{w.word[2 * j + 1][i]} << 32) >> 11;
}

void uniform64(const RngStream& stream, double scale, double offset, double* to) {
  Words w;
  fill_words(stream, w);
  for (size_t i = 0; i < kBlocks; ++i) {
    for (int j = 0; j < 2; ++j) {
      const double product = double(bits53(w, j, i)) * 0x1p-53 * scale;
      to[2 * i + size_t(j)] = offset + product;
    }
  }
}

// Box-Muller on a quarter turn: 2 pi u = (q + 4 f) pi / 2 with |f| <= 1/8 exact, so that the angle
// is small and keeps its digits.
template <class V>
struct Pair {
  V cos, sin;
};

template <class V, class VU>
HWY_INLINE Pair<V> turn(V radius, V f, VU q) {
  const hn::DFromV<V> d;
  const hn::DFromV<VU> du;
  constexpr int kSign = int(sizeof(hn::TFromV<V>)) * 8 - 2;  // moves bit 1 to the sign
  const V angle = hn::Mul(f, hn::Set(d, hn::TFromV<V>(6.283185307179586477)));
  const V c = Cos(d, angle), s = Sin(d, angle);
  const VU one = hn::Set(du, 1), two = hn::Set(du, 2);
  const auto odd = hn::RebindMask(d, hn::Eq(hn::And(q, one), one));
  const V sign_c = hn::BitCast(d, hn::ShiftLeft<kSign>(hn::And(hn::Add(q, one), two)));
  const V sign_s = hn::BitCast(d, hn::ShiftLeft<kSign>(hn::And(q, two)));
  return {hn::Mul(radius, hn::Xor(hn::IfThenElse(odd, s, c), sign_c)),
          hn::Mul(radius, hn::Xor(hn::IfThenElse(odd, c, s), sign_s))};
}

void normal32(const RngStream& stream, float scale, float offset, float* to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  Words w;
  fill_words(stream, w);
  const auto unit = hn::Set(d, 0x1p-24f);
  const auto pair = [&](size_t j, size_t i) HWY_ATTR {
    const auto w1 = hn::ShiftRight<8>(hn::Load(du, w.word[j] + i));
    const auto w2 = hn::ShiftRight<8>(hn::Load(du, w.word[j + 1] + i));
    const auto up = hn::BitCast(di, hn::Add(w1, hn::Set(du, 1)));
    const auto u1 = hn::Mul(hn::ConvertTo(d, up), unit);
    const auto radius = hn::Sqrt(hn::Mul(hn::Set(d, -2.0f), Log(d, u1)));
    const auto q = hn::ShiftRight<22>(hn::Add(w2, hn::Set(du, uint32_t{1} << 21)));
    const auto rest = hn::BitCast(di, hn::Sub(w2, hn::ShiftLeft<22>(q)));
    return turn(radius, hn::Mul(hn::ConvertTo(d, rest), unit), q);
  };
  const auto place = [&](auto z) HWY_ATTR {
    return hn::Add(hn::Mul(z, hn::Set(d, scale)), hn::Set(d, offset));
  };
  for (size_t i = 0; i < kBlocks; i += hn::Lanes(d)) {
    const auto a = pair(0, i), b = pair(2, i);
    store_interleaved(place(a.cos), place(a.sin), place(b.cos), place(b.sin), to + 4 * i);
  }
}

void normal64(const RngStream& stream, double scale, double offset, double* to) {
  const hn::ScalableTag<double> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  Words w;
  fill_words(stream, w);
  HWY_ALIGN double u1[kBlocks], f[kBlocks];
  HWY_ALIGN uint64_t q[kBlocks];
  for (size_t i = 0; i < kBlocks; ++i) {
    u1[i] = double(bits53(w, 0, i) + 1) * 0x1p-53;
    const uint64_t turns = bits53(w, 1, i);
    q[i] = (turns + (uint64_t{1} << 50)) >> 51;
    f[i] = double(int64_t(turns - (q[i] << 51))) * 0x1p-53;
  }
  for (size_t i = 0; i < kBlocks; i += hn::Lanes(d)) {
    const auto radius = hn::Sqrt(hn::Mul(hn::Set(d, -2.0), Log(d, hn::Load(d, u1 + i))));
    const auto z = turn(radius, hn::Load(d, f + i), hn::Load(du, q + i));
    hn::Store(z.cos, d, u1 + i);
    hn::Store(z.sin, d, f + i);
  }
  for (size_t i = 0; i < kBlocks; ++i) {
    to[2 * i] = u1[i] * scale + offset;
    to[2 * i + 1] = f[i] * scale + offset;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(uniform32);
HWY_EXPORT(uniform64);
HWY_EXPORT(normal32);
HWY_EXPORT(normal64);

void uniform_f32(const RngStream& stream, int bits, float scale, float offset, float* to) {
  HWY_DYNAMIC_DISPATCH(uniform32)(stream, bits, scale, offset, to);
}
void uniform_f64(const RngStream& stream, double scale, double offset, double* to) {
  HWY_DYNAMIC_DISPATCH(uniform64)(stream, scale, offset, to);
}
void normal_f32(const RngStream& stream, float scale, float offset, float* to) {
  HWY_DYNAMIC_DISPATCH(normal32)(stream, scale, offset, to);
}
void normal_f64(const RngStream& stream, double scale, double offset, double* to) {
  HWY_DYNAMIC_DISPATCH(normal64)(stream, scale, offset, to);
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
