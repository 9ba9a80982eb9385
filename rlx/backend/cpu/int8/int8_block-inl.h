// The dot products of blocks for x86, over dot4(u8, i8, i32), which adds the products of four
// neighbours to each 32-bit lane. Included by one file per instruction set, inside its unnamed
// namespace.

// Lane l holds sums that begin at `start`; both operands of 32 elements.
template <DType T>
__attribute__((always_inline)) inline __m256i block_sums(const uint8_t* w, __m256i q,
                                                         __m256i start) {
  if (T == DType::kQ8_0) {
    // The sign of w goes to the other side: -128 has its magnitude as an unsigned byte only.
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 2));
    return dot4(_mm256_abs_epi8(codes), _mm256_sign_epi8(q, codes), start);
  }
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w + 2));
  const __m256i both =
      _mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1);
  return dot4(_mm256_and_si256(both, _mm256_set1_epi8(15)), q, start);
}

__attribute__((always_inline)) inline float add_lanes(__m256 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// R columns at a time, so that the chains of their sums overlap.
template <DType T, int R>
void dot_columns(const Int8Dot& p, int64_t row, int64_t column) {
  constexpr int64_t kBytes = T == DType::kQ8_0 ? 34 : 18;
  const int64_t row_bytes = p.blocks * kBytes;
  const uint8_t* w = p.w + column * row_bytes;
  const int8_t* q = p.q + row * p.blocks * 32;
  const float* scale = p.scale + row * p.blocks;
  const int32_t* start = p.start + row * p.blocks * 8;
  __m256 lanes[R];
  for (int r = 0; r < R; ++r) lanes[r] = _mm256_setzero_ps();
  for (int64_t b = 0; b < p.blocks; ++b) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + b * 32));
    const __m256i from = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(start + b * 8));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const uint8_t* block = w + r * row_bytes + b * kBytes;
      // The same place of the next R columns; past the end a prefetch does nothing.
      _mm_prefetch(reinterpret_cast<const char*>(block + R * row_bytes), _MM_HINT_T1);
      // Four halves at once take one instruction less than one; a block is longer than them.
      const __m128 four = _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(block)));
      const __m256 both = _mm256_set1_ps(_mm_cvtss_f32(four) * scale[b]);
      const __m256 sum = _mm256_cvtepi32_ps(block_sums<T>(block, a, from));
      lanes[r] = _mm256_fmadd_ps(sum, both, lanes[r]);
    }
  }
  for (int r = 0; r < R; ++r) p.y[row * p.y_stride + column + r] = add_lanes(lanes[r]);
}

template <DType T>
void dot_all(const Int8Dot& p) {
  constexpr int R = 4;
  int64_t j = 0;
  for (; j + R <= p.columns; j += R) {
    for (int64_t i = 0; i < p.rows; ++i) dot_columns<T, R>(p, i, j);
  }
  for (; j < p.columns; ++j) {
    for (int64_t i = 0; i < p.rows; ++i) dot_columns<T, 1>(p, i, j);
  }
}

void dot(const Int8Dot& p) {
  p.packed == DType::kQ8_0 ? dot_all<DType::kQ8_0>(p) : dot_all<DType::kQ4_0>(p);
}
