// Blocks of packed dtypes in vectors. Include after "hwy/foreach_target.h"; lives in
// rlx::cpu::HWY_NAMESPACE. The layouts stand in rlx/base/packed_blocks.h.
//   LoadBlock<T>(d, block, w)   the 32 elements of a block of dtype T, exactly, in their order
//   StoreBlock<T>(d, x, block)  the block of 32 numbers; the bytes of encode_packed
// D is a tag of f32 with at most 16 lanes.

#if defined(RLX_BACKEND_CPU_KERNELS_PACKED_CODEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RLX_BACKEND_CPU_KERNELS_PACKED_CODEC_INL_H_
#undef RLX_BACKEND_CPU_KERNELS_PACKED_CODEC_INL_H_
#else
#define RLX_BACKEND_CPU_KERNELS_PACKED_CODEC_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "rlx/base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using BlockTag = hn::CappedTag<float, 16>;
constexpr int kBlockElements = 32;
constexpr int kBlockLanes = int(hn::MaxLanes(BlockTag()));
constexpr int kBlockVectors = kBlockElements / kBlockLanes;
using BlockVec = hn::Vec<BlockTag>;

template <DType T>
constexpr int64_t kBlockBytes = T == DType::kQ8_0 ? 34 : 18;

HWY_INLINE float BlockScale(const uint8_t* block) {
#if HWY_TARGET == HWY_SCALAR
  uint16_t bits;
  std::memcpy(&bits, block, sizeof bits);
  return f16_bits_to_float(bits);
#else
  // A whole block is longer than four halves.
  const hn::FixedTag<float, 4> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> half;
  return hn::GetLane(
      hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(block))));
#endif
}

template <DType T>
HWY_INLINE void LoadBlock(BlockTag d, const uint8_t* HWY_RESTRICT block,
                          BlockVec (&w)[kBlockVectors]) {
  const hn::RebindToSigned<BlockTag> di;
  const BlockVec scale = hn::Set(d, BlockScale(block));
  if constexpr (T == DType::kQ8_0) {
    const hn::Rebind<int8_t, BlockTag> d8;
    const auto* q = reinterpret_cast<const int8_t*>(block + 2);
#pragma GCC unroll 32
    for (int v = 0; v < kBlockVectors; ++v) {
      const auto code = hn::PromoteTo(di, hn::LoadU(d8, q + v * kBlockLanes));
      w[v] = hn::Mul(hn::ConvertTo(d, code), scale);
    }
    return;
  }
  const hn::Rebind<uint8_t, BlockTag> d8;
  const hn::RebindToUnsigned<BlockTag> du;
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  // Sixteen lanes are a table of all codes. The permutation looks at the low four bits of each lane
  // only.
  const BlockVec table = hn::Mul(hn::Iota(d, -8.0f), scale);
  const auto codes = hn::PromoteTo(du, hn::LoadU(d8, block + 2));
  w[0] = hn::TableLookupLanes(table, hn::Indices512<float>{codes.raw});
  w[1] = hn::TableLookupLanes(table, hn::Indices512<float>{hn::ShiftRight<4>(codes).raw});
#else
#pragma GCC unroll 16
  for (int v = 0; v < kBlockVectors / 2; ++v) {
    const auto codes = hn::PromoteTo(du, hn::LoadU(d8, block + 2 + v * kBlockLanes));
    const auto low = hn::BitCast(di, hn::And(codes, hn::Set(du, 15)));
    const auto high = hn::BitCast(di, hn::ShiftRight<4>(codes));
    const auto middle = hn::Set(di, 8);
    w[v] = hn::Mul(hn::ConvertTo(d, hn::Sub(low, middle)), scale);
    w[v + kBlockVectors / 2] = hn::Mul(hn::ConvertTo(d, hn::Sub(high, middle)), scale);
  }
#endif
}

// The largest magnitude, or NaN if a number is not finite.
HWY_INLINE float LargestMagnitude(BlockTag d, const float* HWY_RESTRICT x) {
  const BlockVec most = hn::Set(d, std::numeric_limits<float>::max());
  BlockVec largest = hn::Zero(d);
  bool finite = true;
  for (int i = 0; i < kBlockElements; i += kBlockLanes) {
    const BlockVec magnitude = hn::Abs(hn::LoadU(d, x + i));
    finite = finite && hn::AllTrue(d, hn::Le(magnitude, most));
    largest = hn::Max(largest, magnitude);
  }
  if (!finite) return std::numeric_limits<float>::quiet_NaN();
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

HWY_INLINE void StoreScale(float scale, uint8_t* block) {
  const uint16_t bits = f16_bits_from(scale);
  std::memcpy(block, &bits, sizeof bits);
}

// 1 / scale, or 0 where the codes are those of 0.
HWY_INLINE float ScaleInverse(float scale) {
  const float inverse = scale == 0 ? 0 : 1 / scale;
  return std::isfinite(inverse) ? inverse : 0;
}

// Nearest, halves away from zero.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V RoundAway(D d, V v) {
  using T = hn::TFromD<D>;
  const V whole = hn::Trunc(v);
  const V rest = hn::Abs(hn::Sub(v, whole));  // exact
  const V step = hn::CopySign(hn::Set(d, T(1)), v);
  return hn::Add(whole, hn::IfThenElseZero(hn::Ge(rest, hn::Set(d, T(0.5))), step));
}

HWY_INLINE void StoreQ80(BlockTag d, const float* HWY_RESTRICT x, uint8_t* HWY_RESTRICT block) {
  const hn::RebindToSigned<BlockTag> di;
  const hn::Rebind<int8_t, BlockTag> d8;
  const float amax = LargestMagnitude(d, x);
  StoreScale(amax / 127, block);
  if (std::isnan(amax)) {
    std::memset(block + 2, 0, kBlockElements);
    return;
  }
  const BlockVec inverse = hn::Set(d, ScaleInverse(amax / 127));
  auto* q = reinterpret_cast<int8_t*>(block + 2);
  for (int i = 0; i < kBlockElements; i += kBlockLanes) {
    const BlockVec v = RoundAway(d, hn::Mul(hn::LoadU(d, x + i), inverse));
    hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(di, v)), d8, q + i);
  }
}

HWY_INLINE void StoreQ40(BlockTag d, const float* HWY_RESTRICT x, uint8_t* HWY_RESTRICT block) {
  const hn::RebindToSigned<BlockTag> di;
  const float amax = LargestMagnitude(d, x);
  float most = 0;
  for (int i = 0; amax > 0 && i < kBlockElements; ++i) {
    if (std::fabs(x[i]) != amax) continue;
    most = x[i];
    break;
  }
  const bool finite = !std::isnan(amax);
  const float scale = finite ? most / -8 : amax;
  StoreScale(scale, block);
  const BlockVec inverse = hn::Set(d, ScaleInverse(scale));
  HWY_ALIGN int32_t codes[kBlockElements];
  for (int i = 0; i < kBlockElements; i += kBlockLanes) {
    const BlockVec v = finite ? hn::LoadU(d, x + i) : hn::Zero(d);
    const BlockVec shifted = hn::Add(hn::Mul(v, inverse), hn::Set(d, 8.5f));
    hn::Store(hn::Min(hn::ConvertTo(di, shifted), hn::Set(di, 15)), di, codes + i);
  }
  for (int i = 0; i < kBlockElements / 2; ++i) {
    block[2 + i] = uint8_t(codes[i] | codes[i + kBlockElements / 2] << 4);
  }
}

template <DType T>
HWY_INLINE void StoreBlock(BlockTag d, const float* HWY_RESTRICT x, uint8_t* HWY_RESTRICT block) {
  if constexpr (T == DType::kQ8_0) {
    StoreQ80(d, x, block);
  } else {
    StoreQ40(d, x, block);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#endif
