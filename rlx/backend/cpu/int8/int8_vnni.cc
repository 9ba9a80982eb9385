// Compiled with AVX-512 and its VNNI, and without AVX-VNNI, whose encoding older machines lack
// (rlx/backend/cpu/cpu.cmake). No std functions in here: the linker could take this file's copy of
// one for everyone.
#include "rlx/backend/cpu/int8/int8_kernels.h"

#if defined(__AVX512VNNI__) && defined(__AVX512VL__) && defined(__AVX512BW__)
#include <immintrin.h>

namespace rlx::cpu {
namespace {

__attribute__((always_inline)) inline __m256i dot4(__m256i u, __m256i s, __m256i sum) {
  return _mm256_dpbusd_epi32(sum, u, s);
}

#include "rlx/backend/cpu/int8/int8_block-inl.h"

template <int M>
void tile(const Int8Product& p) {
  __m512i sums[M][2];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) sums[m][0] = sums[m][1] = _mm512_setzero_si512();
  for (int64_t s = 0; s < p.steps; ++s) {
    const int8_t* b = p.b + s * kInt8PanelColumns * 4;
    const __m512i b0 = _mm512_load_si512(b), b1 = _mm512_load_si512(b + 64);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      int32_t four;
      __builtin_memcpy(&four, p.a + m * p.a_stride + s * 4, sizeof four);
      const __m512i a = _mm512_set1_epi32(four);
      sums[m][0] = _mm512_dpbusd_epi32(sums[m][0], a, b0);
      sums[m][1] = _mm512_dpbusd_epi32(sums[m][1], a, b1);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    int32_t* to = p.sums + m * kInt8PanelColumns;
    _mm512_store_si512(to, sums[m][0]);
    _mm512_store_si512(to + 16, sums[m][1]);
  }
}

void product(const Int8Product& p) {
  switch (p.rows) {
    case 1:
      return tile<1>(p);
    case 2:
      return tile<2>(p);
    case 3:
      return tile<3>(p);
    case 4:
      return tile<4>(p);
    case 5:
      return tile<5>(p);
    case 6:
      return tile<6>(p);
    case 7:
      return tile<7>(p);
    case 8:
      return tile<8>(p);
    default:
      return;
  }
}

constexpr Int8Kernels kKernels{"vnni", dot, product};

}  // namespace

const Int8Kernels* int8_kernels_vnni() { return &kKernels; }

}  // namespace rlx::cpu

#else

namespace rlx::cpu {
const Int8Kernels* int8_kernels_vnni() { return nullptr; }
}  // namespace rlx::cpu

#endif
