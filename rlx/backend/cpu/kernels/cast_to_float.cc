#include "rlx/backend/cpu/kernels/cast_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/cast_to_float.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/cast-inl.h"
#include "rlx/backend/cpu/kernels/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class To>
struct ConvertFn {
  template <class From>
  HWY_INLINE To operator()(From v) const {
    return Convert<To>(v);
  }
};

struct OddFn {
  template <class From>
  HWY_INLINE float operator()(From v) const {
    return ToOdd(v);
  }
};

template <class From>
RowFn Select(DType to) {
  switch (to) {
    case DType::kF64:
      return PlainRow1<double, From, ConvertFn<double>>;
    case DType::kF32:
      return PlainRow1<float, From, ConvertFn<float>>;
    default:  // f16, bf16
      return PlainRow1<float, From, OddFn>;
  }
}

RowFn CastToFloat(DType from, DType to) {
  switch (from) {
    case DType::kI8:
      return Select<int8_t>(to);
    case DType::kI16:
      return Select<int16_t>(to);
    case DType::kI32:
      return Select<int32_t>(to);
    case DType::kI64:
      return Select<int64_t>(to);
    case DType::kBool:
    case DType::kU8:
      return Select<uint8_t>(to);
    case DType::kU16:
      return Select<uint16_t>(to);
    case DType::kU32:
      return Select<uint32_t>(to);
    case DType::kU64:
      return Select<uint64_t>(to);
    case DType::kF64:
      return Select<double>(to);
    default:  // f32 and what is widened to it
      return Select<float>(to);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(CastToFloat);

RowFn cast_to_float_row(DType from, DType to) {
  return HWY_DYNAMIC_DISPATCH(CastToFloat)(from, to);
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
