#include "rlx/backend/cpu/kernels/transpose_tile.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rlx/backend/cpu/kernels/transpose_tile.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rlx::cpu {
namespace HWY_NAMESPACE {
namespace {  // other files have functions of these names

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR
constexpr int64_t kSquareBytes = 16;

// A square of N x N elements in N vectors of 16 bytes: log2(N) rounds that interleave vector i with
// vector i + N/2.
template <class T>
HWY_INLINE void transpose_square(const T* HWY_RESTRICT from, int64_t from_stride,
                                 T* HWY_RESTRICT to, int64_t to_stride) {
  constexpr int64_t N = kSquareBytes / int64_t(sizeof(T));
  const hn::FixedTag<T, N> d;
  hn::Vec<decltype(d)> v[N], w[N];
  for (int64_t i = 0; i < N; ++i) v[i] = hn::LoadU(d, from + i * from_stride);
  for (int64_t round = 1; round < N; round *= 2) {
    for (int64_t i = 0; i < N / 2; ++i) {
      w[2 * i] = hn::InterleaveLower(d, v[i], v[i + N / 2]);
      w[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + N / 2]);
    }
    for (int64_t i = 0; i < N; ++i) v[i] = w[i];
  }
  for (int64_t i = 0; i < N; ++i) hn::StoreU(v[i], d, to + i * to_stride);
}
#endif

// Whole lines are read into a buffer and whole lines written from it, so that strides of a power of
// two do not fight for a few sets of the cache.
template <class T>
void transpose_typed(const T* HWY_RESTRICT from, int64_t from_stride, T* HWY_RESTRICT to,
                     int64_t to_stride, int64_t rows, int64_t columns) {
  constexpr int64_t kColumns = kTileColumnBytes / int64_t(sizeof(T));
  constexpr int64_t kLine = 64 / int64_t(sizeof(T));
  HWY_ALIGN T buffer[kTileRowBytes / sizeof(T) * kColumns];
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; c += kLine) {
      __builtin_prefetch(to + r * to_stride + c, 1);
    }
  }
  int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr int64_t N = kSquareBytes / int64_t(sizeof(T));
  for (; c + N <= columns; c += N) {
    for (int64_t i = 0; i < N; ++i) {
      // What the next tile reads here.
      for (int64_t ahead = rows; ahead < 2 * rows; ahead += kLine) {
        __builtin_prefetch(from + ahead + (c + i) * from_stride, 0, 2);
      }
    }
    int64_t r = 0;
    for (; r + N <= rows; r += N) {
      transpose_square(from + r + c * from_stride, from_stride, buffer + r * kColumns + c,
                       kColumns);
    }
    for (; r < rows; ++r) {
      for (int64_t i = 0; i < N; ++i)
        buffer[r * kColumns + c + i] = from[r + (c + i) * from_stride];
    }
  }
#endif
  for (; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) buffer[r * kColumns + c] = from[r + c * from_stride];
  }
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(to + r * to_stride, buffer + r * kColumns, size_t(columns) * sizeof(T));
  }
}

void transpose_any(int64_t bytes, const void* from, int64_t from_stride, void* to,
                   int64_t to_stride, int64_t rows, int64_t columns) {
  const auto run = [&]<class T>(T) {
    transpose_typed(static_cast<const T*>(from), from_stride, static_cast<T*>(to), to_stride, rows,
                    columns);
  };
  switch (bytes) {
    case 1:
      return run(uint8_t{});
    case 2:
      return run(uint16_t{});
    case 4:
      return run(uint32_t{});
    default:
      return run(uint64_t{});
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rlx::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlx::cpu {

HWY_EXPORT(transpose_any);

void transpose_tile(int64_t bytes, const void* from, int64_t from_stride, void* to,
                    int64_t to_stride, int64_t rows, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(transpose_any)(bytes, from, from_stride, to, to_stride, rows, columns);
}

}  // namespace rlx::cpu
#endif
