#include "rlx/backend/cpu/kernels/cast_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/cast_to_integer.cc"
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

template <class From, class To>
constexpr RowFn kRow = PlainRow1<To, From, ConvertFn<To>>;

// Between integers the sign of the target does not matter: bits are dropped or the source's sign is
// extended.
template <class From>
RowFn SelectByWidth(DType to) {
  switch (size_of(to)) {
    case 1:
      return kRow<From, uint8_t>;
    case 2:
      return kRow<From, uint16_t>;
    case 4:
      return kRow<From, uint32_t>;
    default:
      return kRow<From, uint64_t>;
  }
}

template <class From>
RowFn SelectSaturated(DType to) {
  switch (to) {
    case DType::kI8:
      return kRow<From, int8_t>;
    case DType::kI16:
      return kRow<From, int16_t>;
    case DType::kI32:
      return kRow<From, int32_t>;
    case DType::kI64:
      return kRow<From, int64_t>;
    case DType::kU8:
      return kRow<From, uint8_t>;
    case DType::kU16:
      return kRow<From, uint16_t>;
    case DType::kU32:
      return kRow<From, uint32_t>;
    default:
      return kRow<From, uint64_t>;
  }
}

template <class From>
RowFn Select(DType to) {
  if (to == DType::kBool) return kRow<From, bool>;
  if constexpr (std::is_floating_point_v<From>) {
    return SelectSaturated<From>(to);
  } else {
    return SelectByWidth<From>(to);
  }
}

RowFn CastToInteger(DType from, DType to) {
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

HWY_EXPORT(CastToInteger);

RowFn cast_to_integer_row(DType from, DType to) {
  return HWY_DYNAMIC_DISPATCH(CastToInteger)(from, to);
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
