#include "espalier/core/cpu/float16_rows.h"

#include "espalier/core/cpu/unary_row.h"
#include "espalier/core/scalar.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#endif

namespace espalier {

namespace {

// By the instructions that convert, which compilers do not make of the loops. Each function returns the
// number of elements done, a multiple of its lanes.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

[[gnu::target("avx2,f16c")]] int64_t widen_avx2(int64_t n, float* out, const Float16* a) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i))));
  return i;
}
[[gnu::target("avx512f")]] int64_t widen_avx512(int64_t n, float* out, const Float16* a) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + i));
    _mm512_storeu_ps(out + i, _mm512_maskz_cvtph_ps(0xFFFF, bits));
  }
  return i;
}

constexpr int to_nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
constexpr short nan_bits = static_cast<short>(detail::half_nan);

[[gnu::target("avx2,f16c")]] int64_t round_avx2(int64_t n, Float16* out, const float* a) {
  const __m128i nan = _mm_set1_epi16(nan_bits);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 x = _mm256_loadu_ps(a + i);
    const __m256i unordered = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m128i is_nan =
        _mm_packs_epi32(_mm256_castsi256_si128(unordered), _mm256_extracti128_si256(unordered, 1));
    const __m128i bits = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm_blendv_epi8(bits, nan, is_nan));
  }
  return i;
}
[[gnu::target("avx512f,avx512bw,avx512vl")]] int64_t round_avx512(int64_t n, Float16* out, const float* a) {
  const __m256i nan = _mm256_set1_epi16(nan_bits);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512 x = _mm512_loadu_ps(a + i);
    const __m256i bits = _mm512_maskz_cvtps_ph(0xFFFF, x, to_nearest);
    const __m256i result = _mm256_mask_mov_epi16(bits, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), result);
  }
  return i;
}

int64_t widen_in_vectors(int64_t n, float* out, const Float16* a) {
  switch (vector_level()) {
    case VectorLevel::avx512: return widen_avx512(n, out, a);
    case VectorLevel::avx2: return widen_avx2(n, out, a);
    case VectorLevel::baseline: break;
  }
  return 0;
}
int64_t round_in_vectors(int64_t n, Float16* out, const float* a) {
  switch (vector_level()) {
    case VectorLevel::avx512: return round_avx512(n, out, a);
    case VectorLevel::avx2: return round_avx2(n, out, a);
    case VectorLevel::baseline: break;
  }
  return 0;
}

#else

int64_t widen_in_vectors(int64_t, float*, const Float16*) { return 0; }
int64_t round_in_vectors(int64_t, Float16*, const float*) { return 0; }

#endif

}  // namespace

void widen_float16_row(int64_t n, void* out, const void* a, int64_t sa) {
  float* to = static_cast<float*>(out);
  const auto* from = static_cast<const Float16*>(a);
  const int64_t done = sa == 1 ? widen_in_vectors(n, to, from) : 0;
  detail::unary_row<scalar::Cast<float>, float, Float16>(n - done, to + done, from + done * sa, sa);
}

void round_float16_row(int64_t n, void* out, const void* a, int64_t sa) {
  auto* to = static_cast<Float16*>(out);
  const float* from = static_cast<const float*>(a);
  const int64_t done = sa == 1 ? round_in_vectors(n, to, from) : 0;
  detail::unary_row<scalar::Cast<Float16>, Float16, float>(n - done, to + done, from + done * sa, sa);
}

}  // namespace espalier
