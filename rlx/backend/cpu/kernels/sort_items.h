// What Sort and TopK share: elements as unsigned keys in their order, and items of key and place.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "rlx/base/dtype.h"
#include "rlx/compile/kernel.h"

namespace rlx::cpu {

// --- Keys

template <size_t kBytes>
struct UnsignedOf;
template <>
struct UnsignedOf<1> {
  using type = uint8_t;
};
template <>
struct UnsignedOf<2> {
  using type = uint16_t;
};
template <>
struct UnsignedOf<4> {
  using type = uint32_t;
};
template <>
struct UnsignedOf<8> {
  using type = uint64_t;
};
template <class T>
using SortKey = typename UnsignedOf<sizeof(T)>::type;

// The bits of infinity.
template <class T>
constexpr SortKey<T> infinity_bits() {
  if constexpr (std::is_same_v<T, f16>) return 0x7C00;
  if constexpr (std::is_same_v<T, bf16>) return 0x7F80;
  if constexpr (std::is_same_v<T, float>) return 0x7F800000;
  if constexpr (std::is_same_v<T, double>) return 0x7FF0000000000000;
  return 0;
}

// Ascends with the element: NaN is the largest key, -0 and 0 have one.
template <class T>
inline SortKey<T> sort_key(const T& v) {
  using U = SortKey<T>;
  constexpr U kSign = U(U(1) << (8 * sizeof(T) - 1));
  if constexpr (std::is_same_v<T, bool>) {
    return U(v);
  } else if constexpr (std::is_integral_v<T>) {
    return std::is_signed_v<T> ? U(U(v) ^ kSign) : U(v);
  } else {
    U bits;
    std::memcpy(&bits, &v, sizeof(bits));
    // Without branches: signs are hard to predict.
    const U magnitude = U(bits & U(~kSign));
    const U negative = U(U(bits >> (8 * sizeof(T) - 1)) & U(magnitude != 0));
    const U key = U(U(kSign | magnitude) ^ U(U(0) - negative));
    return U(key | U(U(0) - U(magnitude > infinity_bits<T>())));
  }
}

// What turns the order of keys, or 0. Keys of bool have one bit.
template <class T>
constexpr SortKey<T> sort_flip(bool descending) {
  if (!descending) return 0;
  return std::is_same_v<T, bool> ? SortKey<T>(1) : SortKey<T>(~SortKey<T>(0));
}

// --- Items: smaller comes first, by key, then by place.

// Keys of up to 32 bits, places below 2^32.
struct SmallItem {
  uint64_t bits = 0;
  static SmallItem of(uint64_t key, int64_t place) { return {key << 32 | uint64_t(place)}; }
  uint64_t key() const { return bits >> 32; }
  int64_t place() const { return int64_t(bits & 0xFFFFFFFF); }
  bool operator<(const SmallItem& o) const { return bits < o.bits; }
};

struct LargeItem {
  uint64_t bits = 0;
  int64_t at = 0;
  static LargeItem of(uint64_t key, int64_t place) { return {key, place}; }
  uint64_t key() const { return bits; }
  int64_t place() const { return at; }
  bool operator<(const LargeItem& o) const { return bits != o.bits ? bits < o.bits : at < o.at; }
};

// One digit of the keys; `counts` says how often each value of it stands there.
template <class Item>
void radix_pass(const Item* from, Item* to, int64_t n, int shift, uint64_t mask,
                std::array<int64_t, 2048>& counts) {
  int64_t at = 0;
  for (uint64_t d = 0; d <= mask; ++d) {
    const int64_t count = counts[d];
    counts[d] = at;
    at += count;
  }
  for (int64_t i = 0; i < n; ++i) to[counts[from[i].key() >> shift & mask]++] = from[i];
}

// Sorts n items whose places ascend. `spare` holds n more; the result stands in `items`.
template <class Item>
void sort_items(Item* items, Item* spare, int64_t n, int key_bits) {
  constexpr int64_t kFew = 48, kMany = 4096;
  if (n <= kFew) return std::sort(items, items + n);
  const int digit = n < kMany ? 8 : 11;
  const uint64_t mask = (uint64_t(1) << digit) - 1;
  std::array<int64_t, 2048> counts;
  Item *from = items, *to = spare;
  for (int shift = 0; shift < key_bits; shift += digit) {
    std::fill_n(counts.begin(), mask + 1, 0);
    for (int64_t i = 0; i < n; ++i) ++counts[from[i].key() >> shift & mask];
    // All in one bucket: nothing moves.
    if (counts[from[0].key() >> shift & mask] == n) continue;
    radix_pass(from, to, n, shift, mask, counts);
    std::swap(from, to);
  }
  if (from != items) std::copy(from, from + n, items);
}

// f.operator()<T, Item>() for the element type and the smallest item that does.
template <class F>
void with_sort_types(DType dtype, int64_t n, F f) {
  visit_dtype(dtype, [&]<class T>() {
    if constexpr (sizeof(T) <= 4) {
      if (n <= int64_t(std::numeric_limits<uint32_t>::max())) {
        return f.template operator()<T, SmallItem>();
      }
    }
    if constexpr (std::is_arithmetic_v<T> || sizeof(T) == 2) f.template operator()<T, LargeItem>();
  });
}

// --- Lines: what the kernels walk

// Lines of n elements along an axis, at distance `inner`; of `kept` elements in the results.
struct SortLines {
  int64_t n = 0, kept = 0, inner = 1, lines = 0;
  int64_t per_chunk = 1;
  DType index = DType::kI64;
  bool descending = false;
  int64_t first(int64_t line, int64_t length) const {
    return line / inner * length * inner + line % inner;
  }
};

inline SortLines sort_lines(const KernelCall& call, int64_t axis, bool descending, DType index) {
  constexpr int64_t kChunkElements = 16384;
  const std::span<const int64_t> dims = call.operands[0].dims;
  SortLines s;
  s.n = dims[size_t(axis)];
  s.kept = call.results[0].dims[size_t(axis)];
  s.inner = num_elements(dims.subspan(size_t(axis) + 1));
  s.lines = s.inner * num_elements(dims.first(size_t(axis)));
  s.per_chunk = std::max<int64_t>(1, kChunkElements / std::max<int64_t>(s.n, 1));
  s.index = index;
  s.descending = descending;
  return s;
}

// Writes the results of a line from its first items.
template <class T, class Item>
void write_line(const SortLines& s, const StepArgs& args, int64_t line, const Item* items) {
  const T* x = args.in<T>(0) + s.first(line, s.n);
  const int64_t to = s.first(line, s.kept);
  if (T* values = args.out<T>(0)) {
    for (int64_t k = 0; k < s.kept; ++k) {
      values[to + k * s.inner] = x[items[k].place() * s.inner];
    }
  }
  if (!args.results[1]) return;
  const auto write = [&]<class I>(I* indices) {
    for (int64_t k = 0; k < s.kept; ++k) indices[to + k * s.inner] = I(items[k].place());
  };
  if (s.index == DType::kI64) return write(args.out<int64_t>(1));
  if (s.index == DType::kI32) return write(args.out<int32_t>(1));
  write(args.out<float>(1));
}

}  // namespace rlx::cpu
