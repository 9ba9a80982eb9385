#include "rlx/base/dtype.h"

#include <algorithm>

#include "rlx/base/checked.h"
#include "rlx/base/error.h"

namespace rlx {
namespace {

struct DTypeInfo {
  std::string_view name;
  int64_t bytes;  // of one element, or of a block
  DTypeClass cls;
  int64_t block_elements = 1;
};
constexpr DTypeInfo kInfo[] = {
#define RLX_DTYPE(E, name, bytes, cls, type) {name, bytes, DTypeClass::cls},
#define RLX_PACKED_DTYPE(E, name, elements, bytes) {name, bytes, DTypeClass::kPacked, elements},
#include "rlx/base/dtypes.def"
};
const DTypeInfo& info(DType t) { return kInfo[unsigned(t)]; }

DType signed_of(int64_t bytes) {
  return bytes == 1   ? DType::kI8
         : bytes == 2 ? DType::kI16
         : bytes == 4 ? DType::kI32
                      : DType::kI64;
}

DType promote_integers(DType a, DType b) {
  if (class_of(a) == class_of(b)) return size_of(a) >= size_of(b) ? a : b;
  const DType s = class_of(a) == DTypeClass::kSigned ? a : b;
  const DType u = s == a ? b : a;
  if (size_of(s) > size_of(u)) return s;
  if (size_of(u) == 8) {
    user_error("no integer type holds both {} and {}: cast one of them first", to_string(a),
               to_string(b));
  }
  return signed_of(size_of(u) * 2);
}

}  // namespace

std::string_view to_string(DType t) { return info(t).name; }
int64_t size_of(DType t) {
  if (is_packed(t)) throw_packed_dtype(t);
  return info(t).bytes;
}
DTypeClass class_of(DType t) { return info(t).cls; }

PackedBlock block_of(DType t) { return {info(t).block_elements, info(t).bytes}; }

int64_t bytes_of(DType t, int64_t elements) {
  const PackedBlock block = block_of(t);
  if (elements % block.elements != 0) {
    user_error("{} elements of {} are no whole number of its blocks of {}", elements, to_string(t),
               block.elements);
  }
  return checked_mul(elements / block.elements, block.bytes);
}

void throw_packed_dtype(DType t) {
  internal_error("the packed dtype {} has no elements of its own", to_string(t));
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (int i = 0; i < kNumDTypes + kNumPackedDTypes; ++i) {
    if (kInfo[i].name == name) return DType(i);
  }
  return std::nullopt;
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_packed(a) || is_packed(b)) {
    user_error("{} and {} have no common type: dequantize first", to_string(a), to_string(b));
  }
  if (a == DType::kBool) return b;
  if (b == DType::kBool) return a;
  const bool wide = (size_of(a) == 8 && !is_complex(a)) || (size_of(b) == 8 && !is_complex(b));
  if (is_complex(a) || is_complex(b)) {
    return wide || a == DType::kC128 || b == DType::kC128 ? DType::kC128 : DType::kC64;
  }
  if (is_integer(a) && is_integer(b)) return promote_integers(a, b);
  if (is_float(a) && is_float(b)) {
    if (size_of(a) == size_of(b)) return DType::kF32;  // f16 with bf16
    return size_of(a) > size_of(b) ? a : b;
  }
  return wide ? DType::kF64 : DType::kF32;
}

DType accumulation_dtype(DType t) {
  switch (class_of(t)) {
    case DTypeClass::kFloat:
      return size_of(t) < 4 ? DType::kF32 : t;
    case DTypeClass::kSigned:
      return DType::kI64;
    case DTypeClass::kUnsigned:
      return DType::kU64;
    default:
      return t;
  }
}

DType real_of(DType t) {
  return t == DType::kC64 ? DType::kF32 : t == DType::kC128 ? DType::kF64 : t;
}

std::string DTypeSet::to_string() const {
  std::string s;
  for (int i = 0; i < kNumDTypes + kNumPackedDTypes; ++i) {
    if (contains(DType(i))) s += (s.empty() ? "" : " ") + std::string(kInfo[i].name);
  }
  return s;
}

}  // namespace rlx
