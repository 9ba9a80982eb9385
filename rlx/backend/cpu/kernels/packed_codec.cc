#include "rlx/backend/cpu/kernels/packed_codec.h"

#include "rlx/base/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/packed_codec.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/packed_codec-inl.h"
#include "rlx/backend/cpu/kernels/row_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class S>
HWY_INLINE void StoreBlockValues(BlockTag d, const BlockVec (&w)[kBlockVectors], S* out) {
  for (int v = 0; v < kBlockVectors; ++v) StoreF32(w[v], d, out + v * kBlockLanes);
}
HWY_INLINE void StoreBlockValues(BlockTag d, const BlockVec (&w)[kBlockVectors], double* out) {
  HWY_ALIGN float values[kBlockElements];
  for (int v = 0; v < kBlockVectors; ++v) hn::Store(w[v], d, values + v * kBlockLanes);
  for (int i = 0; i < kBlockElements; ++i) out[i] = double(values[i]);
}

template <class S>
HWY_INLINE void LoadBlockValues(BlockTag d, const S* from, float* HWY_RESTRICT values) {
  for (int i = 0; i < kBlockElements; i += kBlockLanes) {
    hn::StoreU(LoadF32(d, from + i), d, values + i);
  }
}
HWY_INLINE void LoadBlockValues(BlockTag, const double* from, float* HWY_RESTRICT values) {
  for (int i = 0; i < kBlockElements; ++i) values[i] = float(from[i]);
}

template <DType T, class S>
void Decode(const uint8_t* from, int64_t count, S* out) {
  const BlockTag d;
  for (; count > 0; count -= kBlockElements, from += kBlockBytes<T>, out += kBlockElements) {
    BlockVec w[kBlockVectors];
    LoadBlock<T>(d, from, w);
    StoreBlockValues(d, w, out);
  }
}

template <DType T, class S>
void Encode(const S* x, int64_t count, uint8_t* out) {
  const BlockTag d;
  HWY_ALIGN float values[kBlockElements];
  for (; count > 0; count -= kBlockElements, x += kBlockElements, out += kBlockBytes<T>) {
    LoadBlockValues(d, x, values);
    StoreBlock<T>(d, values, out);
  }
}

}  // namespace

void DecodeRow(DType packed, const void* from, int64_t count, DType to, void* out) {
  WithFloatType(to, [&]<class S>() {
    const auto* bytes = static_cast<const uint8_t*>(from);
    if (packed == DType::kQ8_0) {
      Decode<DType::kQ8_0>(bytes, count, static_cast<S*>(out));
    } else {
      Decode<DType::kQ4_0>(bytes, count, static_cast<S*>(out));
    }
  });
}

void EncodeRow(DType packed, DType from, const void* x, int64_t count, void* out) {
  WithFloatType(from, [&]<class S>() {
    auto* bytes = static_cast<uint8_t*>(out);
    if (packed == DType::kQ8_0) {
      Encode<DType::kQ8_0>(static_cast<const S*>(x), count, bytes);
    } else {
      Encode<DType::kQ4_0>(static_cast<const S*>(x), count, bytes);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(DecodeRow);
HWY_EXPORT(EncodeRow);

void decode_row(DType packed, const void* from, int64_t count, DType to, void* out) {
  HWY_DYNAMIC_DISPATCH(DecodeRow)(packed, from, count, to, out);
}

void encode_row(DType packed, DType from, const void* x, int64_t count, void* out) {
  HWY_DYNAMIC_DISPATCH(EncodeRow)(packed, from, x, count, out);
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
