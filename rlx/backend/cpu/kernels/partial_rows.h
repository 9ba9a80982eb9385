// Sums over rows for each column, as the norms' gradients of gamma and beta need them: row r adds
// to partial sum r mod 64, and the partial sums are added as SumRow (row_sum-inl.h) adds them.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rlx::cpu {

inline constexpr int64_t kPartialRows = 64;
inline constexpr int64_t kPartialColumns = 2048;  // of a chunk that adds partial sums

// out[begin..end) = the sums of the partial sums p in base[p * stride + begin..end), which are
// overwritten.
template <class S, class T>
void add_partial_rows(T* base, int64_t partials, int64_t stride, int64_t begin, int64_t end,
                      S* out) {
  if (partials == 0) return std::fill(out + begin, out + end, S(T(0)));
  for (int64_t h = kPartialRows / 2; h > 0; h /= 2) {
    for (int64_t p = 0; p < h && p + h < partials; ++p) {
      T *to = base + p * stride, *from = to + h * stride;
      for (int64_t j = begin; j < end; ++j) to[j] += from[j];
    }
  }
  for (int64_t j = begin; j < end; ++j) out[j] = S(base[j]);
}

}  // namespace rlx::cpu
