#include <limits>
#include <type_traits>

#include "rlx/backend/cpu/kernels/binary_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/binary_integer.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "rlx/backend/cpu/kernels/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {

// Narrow types would be promoted to int, where products of u16 overflow: they are computed without
// sign and cut back.
template <class T>
using Word = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;
template <class T>
constexpr int kBits = int(8 * sizeof(T));

// Of unsigned T only: wrapping is the same for signed numbers.
template <class T>
struct AddFn {
  HWY_INLINE T operator()(T a, T b) const { return T(Word<T>(a) + Word<T>(b)); }
};
template <class T>
struct SubFn {
  HWY_INLINE T operator()(T a, T b) const { return T(Word<T>(a) - Word<T>(b)); }
};
template <class T>
struct MulFn {
  HWY_INLINE T operator()(T a, T b) const { return T(Word<T>(a) * Word<T>(b)); }
};
template <class T>
struct AndFn {
  HWY_INLINE T operator()(T a, T b) const { return T(a & b); }
};
template <class T>
struct OrFn {
  HWY_INLINE T operator()(T a, T b) const { return T(a | b); }
};
template <class T>
struct XorFn {
  HWY_INLINE T operator()(T a, T b) const { return T(a ^ b); }
};
template <class T>
struct ShlFn {
  HWY_INLINE T operator()(T a, T count) const {
    const T shifted = T(Word<T>(a) << (count & (kBits<T> - 1)));
    return count < T(kBits<T>) ? shifted : T(0);
  }
};

// Of every type.
template <class T>
struct MaxFn {
  HWY_INLINE T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T>
struct MinFn {
  HWY_INLINE T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T>
struct ShrFn {
  HWY_INLINE T operator()(T a, T count) const {
    using U = std::make_unsigned_t<T>;
    const bool far = U(count) >= U(kBits<T>);
    if constexpr (std::is_signed_v<T>) {
      return T(a >> (far ? kBits<T> - 1 : int(count)));
    } else {
      return far ? T(0) : T(a >> count);
    }
  }
};
template <class T>
struct DivFn {
  HWY_INLINE T operator()(T a, T b) const {
    if (b == 0) return T(-1);
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return T(0 - Word<T>(a));
    }
    return T(a / b);
  }
};
template <class T>
struct ModFn {
  HWY_INLINE T operator()(T a, T b) const {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
    }
    return T(a % b);
  }
};
template <class T>
struct PowFn {
  HWY_INLINE T operator()(T base, T exponent) const {
    if constexpr (std::is_signed_v<T>) {
      if (exponent < 0) {
        if (base == 1) return 1;
        if (base == -1) return exponent % 2 == 0 ? 1 : -1;
        return 0;
      }
    }
    using U = std::make_unsigned_t<T>;
    Word<T> result = 1, square = Word<T>(U(base));
    for (U e = U(exponent); e != 0; e = U(e >> 1)) {
      if (e & 1) result *= square;
      square *= square;
    }
    return T(result);
  }
};

template <class T, template <class> class F>
constexpr RowFn kRow = PlainRow2<T, T, T, F<T>>;

template <class T>
RowFn Select(BinaryKind kind) {
  using U = std::make_unsigned_t<T>;
  switch (kind) {
    case BinaryKind::kAdd:
      return kRow<U, AddFn>;
    case BinaryKind::kSub:
      return kRow<U, SubFn>;
    case BinaryKind::kMul:
      return kRow<U, MulFn>;
    case BinaryKind::kDiv:
      return kRow<T, DivFn>;
    case BinaryKind::kMax:
      return kRow<T, MaxFn>;
    case BinaryKind::kMin:
      return kRow<T, MinFn>;
    case BinaryKind::kPow:
      return kRow<T, PowFn>;
    case BinaryKind::kMod:
      return kRow<T, ModFn>;
    case BinaryKind::kBitAnd:
      return kRow<U, AndFn>;
    case BinaryKind::kBitOr:
      return kRow<U, OrFn>;
    case BinaryKind::kBitXor:
      return kRow<U, XorFn>;
    case BinaryKind::kShl:
      return kRow<U, ShlFn>;
    case BinaryKind::kShr:
      return kRow<T, ShrFn>;
    case BinaryKind::kAtan2:
      break;
  }
  return nullptr;
}

}  // namespace

RowFn BinaryIntegerRow(BinaryKind kind, DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return Select<int8_t>(kind);
    case DType::kI16:
      return Select<int16_t>(kind);
    case DType::kI32:
      return Select<int32_t>(kind);
    case DType::kI64:
      return Select<int64_t>(kind);
    case DType::kBool:  // 0 and 1
    case DType::kU8:
      return Select<uint8_t>(kind);
    case DType::kU16:
      return Select<uint16_t>(kind);
    case DType::kU32:
      return Select<uint32_t>(kind);
    case DType::kU64:
      return Select<uint64_t>(kind);
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(BinaryIntegerRow);

RowFn binary_integer_row(BinaryKind kind, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(BinaryIntegerRow)(kind, dtype);
}

}  // namespace rlx::cpu
#endif  // HWY_ONCE
