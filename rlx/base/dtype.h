// Element types, sets of them, and the promotion table.
#pragma once

#include <complex>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rlx/base/half.h"

namespace rlx {

enum class DType : uint8_t {
#define RLX_DTYPE(E, name, bytes, cls, type) E,
#define RLX_PACKED_DTYPE(E, name, elements, bytes) E,
#include "rlx/base/dtypes.def"
};
// The types of single elements come first, packed ones after them.
inline constexpr int kNumDTypes = 0
#define RLX_DTYPE(E, name, bytes, cls, type) +1
#include "rlx/base/dtypes.def"
    ;
inline constexpr int kNumPackedDTypes = 0
#define RLX_PACKED_DTYPE(E, name, elements, bytes) +1
#include "rlx/base/dtypes.def"
    ;

enum class DTypeClass : uint8_t { kBool, kSigned, kUnsigned, kFloat, kComplex, kPacked };

std::string_view to_string(DType t);
std::optional<DType> parse_dtype(std::string_view name);
int64_t size_of(DType t);  // bytes of one element; throws for a packed dtype
DTypeClass class_of(DType t);

inline bool is_float(DType t) { return class_of(t) == DTypeClass::kFloat; }
inline bool is_complex(DType t) { return class_of(t) == DTypeClass::kComplex; }
inline bool is_integer(DType t) {
  return class_of(t) == DTypeClass::kSigned || class_of(t) == DTypeClass::kUnsigned;
}
// Blocks of quantized values with their scales inside: the last axis is a whole number of blocks,
// and only whole blocks have an address.
inline bool is_packed(DType t) { return class_of(t) == DTypeClass::kPacked; }
struct PackedBlock {
  int64_t elements = 1, bytes = 1;
};
PackedBlock block_of(DType t);  // one element and its bytes if not packed
// Bytes of so many consecutive elements, checked; a packed dtype takes whole blocks only.
int64_t bytes_of(DType t, int64_t elements);

// Values of which a derivative exists: floats and complex numbers.
inline bool is_differentiable(DType t) { return is_float(t) || is_complex(t); }

// The result type of a binary op on two types (symmetric). Throws if no type holds both.
//   equal: same; f16 with bf16: f32; integer with float: f64 if the float is f64 or the integer
//   has 64 bits, else f32; signed with unsigned: the narrowest signed type that holds both (i64
//   with u64: error); bool with anything: the other; float with complex: the complex type wide
//   enough for both (f64 or a 64-bit integer gives c128).
DType promote(DType a, DType b);

// The type in which values of type t are accumulated: f32 for 16-bit floats, i64/u64 for
// integers, else t itself.
DType accumulation_dtype(DType t);
DType real_of(DType complex);  // c64 -> f32, c128 -> f64, others unchanged

// A set of dtypes as a bit mask.
class DTypeSet {
 public:
  constexpr DTypeSet() = default;
  constexpr DTypeSet(DType t) : bits_(uint64_t(1) << unsigned(t)) {}  // NOLINT: implicit on purpose
  constexpr DTypeSet operator|(DTypeSet o) const { return DTypeSet(bits_ | o.bits_, 0); }
  constexpr bool contains(DType t) const { return (bits_ >> unsigned(t)) & 1; }
  constexpr bool operator==(const DTypeSet&) const = default;
  std::string to_string() const;  // "f16 bf16 f32 f64"

 private:
  constexpr DTypeSet(uint64_t bits, int) : bits_(bits) {}
  uint64_t bits_ = 0;
};

// The groups that ops.def names.
namespace dtypes {
inline constexpr DTypeSet kFloats =
    DTypeSet(DType::kF16) | DType::kBF16 | DType::kF32 | DType::kF64;
inline constexpr DTypeSet kInts = DTypeSet(DType::kI8) | DType::kI16 | DType::kI32 | DType::kI64 |
                                  DType::kU8 | DType::kU16 | DType::kU32 | DType::kU64;
inline constexpr DTypeSet kBools = DType::kBool;
inline constexpr DTypeSet kComplexes = DTypeSet(DType::kC64) | DType::kC128;
inline constexpr DTypeSet kReals = kFloats | kInts;
inline constexpr DTypeSet kNumbers = kReals | kComplexes;
inline constexpr DTypeSet kAny = kNumbers | kBools;
inline constexpr DTypeSet kPacked = DTypeSet(DType::kQ4_0) | DType::kQ8_0;
inline constexpr DTypeSet kAnyOrPacked = kAny | kPacked;
inline constexpr DTypeSet kFloatsComplexes = kFloats | kComplexes;
inline constexpr DTypeSet kIndices = kInts;
inline constexpr DTypeSet kPositions = DType::kI64;
}  // namespace dtypes

template <DType T>
struct CppTypeOf;
template <class T>
struct DTypeOf;
#define RLX_DTYPE(E, name, bytes, cls, T)    \
  template <>                                \
  struct CppTypeOf<DType::E> {               \
    using type = T;                          \
  };                                         \
  template <>                                \
  struct DTypeOf<T> {                        \
    static constexpr DType value = DType::E; \
  };
#include "rlx/base/dtypes.def"
template <DType T>
using cpp_type = typename CppTypeOf<T>::type;
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

[[noreturn]] void throw_packed_dtype(DType t);

// Calls f.template operator()<T>() with the C++ storage type of t; throws for a packed dtype.
template <class F>
decltype(auto) visit_dtype(DType t, F&& f) {
  switch (t) {
#define RLX_DTYPE(E, name, bytes, cls, T) \
  case DType::E:                          \
    return f.template operator()<T>();
#include "rlx/base/dtypes.def"
    default:
      throw_packed_dtype(t);
  }
}

}  // namespace rlx
