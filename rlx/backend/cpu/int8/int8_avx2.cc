// Compiled with -mavx2 -mfma -mf16c (rlx/backend/cpu/cpu.cmake). No std functions in here: the
// linker could take this file's copy of one for everyone.
#include "rlx/backend/cpu/int8/int8_kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>

namespace rlx::cpu {
namespace {

// maddubs saturates sums of two products at 16 bits; what comes here stays below: 2 * 128 * 127.
__attribute__((always_inline)) inline __m256i dot4(__m256i u, __m256i s, __m256i sum) {
  const __m256i pairs = _mm256_maddubs_epi16(u, s);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#include "rlx/backend/cpu/int8/int8_block-inl.h"

// Any u8 times any i8 does not fit maddubs: bytes of even and odd place are widened to 16 bits,
// whose products are summed in 32.
template <int M>
void tile(const Int8Product& p, int64_t row) {
  constexpr int N = 4;  // vectors of eight columns
  __m256i sums[M][N];
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) sums[m][n] = _mm256_setzero_si256();
  }
  const __m256i low = _mm256_set1_epi16(0xFF);
  for (int64_t s = 0; s < p.steps; ++s) {
    __m256i even[M], odd[M];
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      int32_t four;
      __builtin_memcpy(&four, p.a + (row + m) * p.a_stride + s * 4, sizeof four);
      const __m256i a = _mm256_set1_epi32(four);
      even[m] = _mm256_and_si256(a, low);
      odd[m] = _mm256_srli_epi16(a, 8);
    }
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const __m256i b = _mm256_load_si256(
          reinterpret_cast<const __m256i*>(p.b + (s * kInt8PanelColumns + n * 8) * 4));
      const __m256i b_even = _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8);
      const __m256i b_odd = _mm256_srai_epi16(b, 8);
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m) {
        const __m256i both =
            _mm256_add_epi32(_mm256_madd_epi16(even[m], b_even), _mm256_madd_epi16(odd[m], b_odd));
        sums[m][n] = _mm256_add_epi32(sums[m][n], both);
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      int32_t* to = p.sums + (row + m) * kInt8PanelColumns + n * 8;
      _mm256_store_si256(reinterpret_cast<__m256i*>(to), sums[m][n]);
    }
  }
}

void product(const Int8Product& p) {
  int64_t i = 0;
  for (; i + 2 <= p.rows; i += 2) tile<2>(p, i);
  if (i < p.rows) tile<1>(p, i);
}

constexpr Int8Kernels kKernels{"avx2", dot, product};

}  // namespace

const Int8Kernels* int8_kernels_avx2() { return &kKernels; }

}  // namespace rlx::cpu

#else

namespace rlx::cpu {
const Int8Kernels* int8_kernels_avx2() { return nullptr; }
}  // namespace rlx::cpu

#endif
