#include "rlx/ops/compare.h"

#include <type_traits>

#include "rlx/backend/cpu/kernels/elementwise_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/compare.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

// Vectors have no >= of integers everywhere: not < is the same where nothing is NaN. Nor is their
// own != true for NaN everywhere.
template <CompareKind kKind, class V>
HWY_INLINE auto CompareVectors(V a, V b) {
  constexpr bool kFloat = std::is_floating_point_v<hn::TFromV<V>>;
  if constexpr (kKind == CompareKind::kEq) {
    return hn::Eq(a, b);
  } else if constexpr (kKind == CompareKind::kNe) {
    return hn::Not(hn::Eq(a, b));
  } else if constexpr (kKind == CompareKind::kLt) {
    return hn::Lt(a, b);
  } else if constexpr (kKind == CompareKind::kGt) {
    return hn::Gt(a, b);
  } else if constexpr (kKind == CompareKind::kLe && kFloat) {
    return hn::Le(a, b);
  } else if constexpr (kKind == CompareKind::kGe && kFloat) {
    return hn::Ge(a, b);
  } else if constexpr (kKind == CompareKind::kLe) {
    return hn::Not(hn::Gt(a, b));
  } else {
    return hn::Not(hn::Lt(a, b));
  }
}

template <class T, CompareKind kKind>
void VectorRow(const Row& r) {
  const RowTag<T> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  for (int64_t k = 0; k < r.count; k += int64_t(hn::Lanes(d))) {
    const auto mask =
        CompareVectors<kKind>(hn::LoadU(d, r.at<T>(0, k)), hn::LoadU(d, r.at<T>(1, k)));
    const auto ones = hn::IfThenElseZero(hn::RebindMask(du, mask), hn::Set(du, 1));
    if constexpr (sizeof(T) == 4) {  // TruncateTo from here takes the wrong bytes on AVX3_DL
      hn::StoreU(hn::U8FromU32(ones), d8, r.result<uint8_t>(k));
    } else {
      hn::StoreU(hn::TruncateTo(d8, ones), d8, r.result<uint8_t>(k));
    }
  }
}

template <class T, CompareKind kKind>
struct PlainFn {
  HWY_INLINE uint8_t operator()(T a, T b) const {
    switch (kKind) {
      case CompareKind::kEq:
        return a == b;
      case CompareKind::kNe:
        return a != b;
      case CompareKind::kLt:
        return a < b;
      case CompareKind::kLe:
        return a <= b;
      case CompareKind::kGt:
        return a > b;
      case CompareKind::kGe:
        return a >= b;
    }
  }
};

template <class T>
struct Parts {
  T re, im;
};

template <class T, bool kEqual>
struct PartsFn {
  HWY_INLINE uint8_t operator()(Parts<T> a, Parts<T> b) const {
    const bool equal = (a.re == b.re) & (a.im == b.im);
    return equal == kEqual;
  }
};

template <class T, CompareKind kKind>
constexpr RowFn RowOf() {
  if constexpr (sizeof(T) >= 4) {
    return VectorRow<T, kKind>;
  } else {
    return PlainRow2<uint8_t, T, T, PlainFn<T, kKind>>;
  }
}

template <class T>
RowFn Select(CompareKind kind) {
  switch (kind) {
    case CompareKind::kEq:
      return RowOf<T, CompareKind::kEq>();
    case CompareKind::kNe:
      return RowOf<T, CompareKind::kNe>();
    case CompareKind::kLt:
      return RowOf<T, CompareKind::kLt>();
    case CompareKind::kLe:
      return RowOf<T, CompareKind::kLe>();
    case CompareKind::kGt:
      return RowOf<T, CompareKind::kGt>();
    case CompareKind::kGe:
      return RowOf<T, CompareKind::kGe>();
  }
  return nullptr;
}

template <class T>
RowFn SelectParts(CompareKind kind) {
  return kind == CompareKind::kEq ? PlainRow2<uint8_t, Parts<T>, Parts<T>, PartsFn<T, true>>
                                  : PlainRow2<uint8_t, Parts<T>, Parts<T>, PartsFn<T, false>>;
}

RowFn CompareRow(CompareKind kind, DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return Select<int8_t>(kind);
    case DType::kI16:
      return Select<int16_t>(kind);
    case DType::kI32:
      return Select<int32_t>(kind);
    case DType::kI64:
      return Select<int64_t>(kind);
    case DType::kBool:
    case DType::kU8:
      return Select<uint8_t>(kind);
    case DType::kU16:
      return Select<uint16_t>(kind);
    case DType::kU32:
      return Select<uint32_t>(kind);
    case DType::kU64:
      return Select<uint64_t>(kind);
    case DType::kF64:
      return Select<double>(kind);
    case DType::kC64:
      return SelectParts<float>(kind);
    case DType::kC128:
      return SelectParts<double>(kind);
    default:  // f32 and what is widened to it
      return Select<float>(kind);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(CompareRow);

RowFn compare_row(CompareKind kind, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(CompareRow)(kind, dtype);
}

namespace {

constexpr KernelEntry kEntries[] = {
    {
        .name = "compare:any",
        .fits = [](const KernelCall&) -> std::string_view { return ""; },
        .prepare =
            [](const KernelCall& c) {
              const DType t = c.operands[0].dtype;
              const RowFn row = compare_row(c.as<CompareAttrs>().kind, t);
              return prepare_elementwise(c, row, 0.02 * double(size_of(t)));
            },
        .operand_forms = kAnyStrides,
        .result_form = StrideForm::kAny,
        .stride_cost = elementwise_stride_cost,
        .in_place = 3,
        .vector = true,
    },
};

}  // namespace

RLX_DEFINE_KERNELS(Compare, Cpu) = {kEntries};

}  // namespace rlx::cpu
#endif  // HWY_ONCE
