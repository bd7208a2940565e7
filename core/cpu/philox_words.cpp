#include "espalier/core/cpu/philox_words.h"

#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/philox.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#endif

namespace espalier::detail {
namespace {

// Written by hand, since g++ multiplies 32 by 32 bits only between permutations, at a third of the speed.
// Each block has one 64-bit lane of a, b, c and d; multiplications ignore a lane's high half, so
// it is cleared only at the end. Each function returns the number of blocks done, a multiple of its lanes.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

using FourLanes = uint64_t __attribute__((vector_size(32)));
using EightLanes = uint64_t __attribute__((vector_size(64)));

[[gnu::target("avx2"), gnu::always_inline]] inline FourLanes product(FourLanes x, uint32_t factor) {
  return reinterpret_cast<FourLanes>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(x), _mm256_set1_epi64x(factor)));
}
// With a mask, since g++ 12 warns of an uninitialized variable in the intrinsic without one.
[[gnu::target("avx512f"), gnu::always_inline]] inline EightLanes product(EightLanes x, uint32_t factor) {
  return reinterpret_cast<EightLanes>(
      _mm512_maskz_mul_epu32(0xFF, reinterpret_cast<__m512i>(x), _mm512_set1_epi64(factor)));
}

[[gnu::target("avx2")]] int64_t words_avx2(RandomStream stream, uint64_t first, int64_t blocks,
                                           uint32_t* out) {
  using Lanes = FourLanes;
  int64_t done = 0;
  for (; done + 4 <= blocks; done += 4) {
    Lanes a = first + static_cast<uint64_t>(done) + Lanes{0, 1, 2, 3};
    Lanes b = a >> 32;
    Lanes c = stream.stream + Lanes{};
    Lanes d = c >> 32;
    auto key0 = static_cast<uint32_t>(stream.seed);
    auto key1 = static_cast<uint32_t>(stream.seed >> 32);
    for (int round = 0; round < philox::rounds; ++round) {
      const Lanes of_a = product(a, philox::factor0);
      const Lanes of_c = product(c, philox::factor1);
      a = (of_c >> 32) ^ (b ^ key0);
      b = of_c;
      c = (of_a >> 32) ^ (d ^ key1);
      d = of_a;
      key0 += philox::key_step0;
      key1 += philox::key_step1;
    }
    const Lanes ab = (a & 0xFFFFFFFF) | (b << 32);
    const Lanes cd = (c & 0xFFFFFFFF) | (d << 32);
    auto* to = reinterpret_cast<__m256i*>(out + 4 * done);
    _mm256_storeu_si256(to, reinterpret_cast<__m256i>(__builtin_shufflevector(ab, cd, 0, 4, 1, 5)));
    _mm256_storeu_si256(to + 1, reinterpret_cast<__m256i>(__builtin_shufflevector(ab, cd, 2, 6, 3, 7)));
  }
  return done;
}

[[gnu::target("avx512f")]] int64_t words_avx512(RandomStream stream, uint64_t first, int64_t blocks,
                                                uint32_t* out) {
  using Lanes = EightLanes;
  int64_t done = 0;
  for (; done + 8 <= blocks; done += 8) {
    Lanes a = first + static_cast<uint64_t>(done) + Lanes{0, 1, 2, 3, 4, 5, 6, 7};
    Lanes b = a >> 32;
    Lanes c = stream.stream + Lanes{};
    Lanes d = c >> 32;
    auto key0 = static_cast<uint32_t>(stream.seed);
    auto key1 = static_cast<uint32_t>(stream.seed >> 32);
    for (int round = 0; round < philox::rounds; ++round) {
      const Lanes of_a = product(a, philox::factor0);
      const Lanes of_c = product(c, philox::factor1);
      a = (of_c >> 32) ^ (b ^ key0);
      b = of_c;
      c = (of_a >> 32) ^ (d ^ key1);
      d = of_a;
      key0 += philox::key_step0;
      key1 += philox::key_step1;
    }
    const Lanes ab = (a & 0xFFFFFFFF) | (b << 32);
    const Lanes cd = (c & 0xFFFFFFFF) | (d << 32);
    uint32_t* to = out + 4 * done;
    _mm512_storeu_si512(to,
                        reinterpret_cast<__m512i>(__builtin_shufflevector(ab, cd, 0, 8, 1, 9, 2, 10, 3, 11)));
    _mm512_storeu_si512(
        to + 16, reinterpret_cast<__m512i>(__builtin_shufflevector(ab, cd, 4, 12, 5, 13, 6, 14, 7, 15)));
  }
  return done;
}

int64_t words_in_vectors(RandomStream stream, uint64_t first, int64_t blocks, uint32_t* out) {
  switch (vector_level()) {
    case VectorLevel::avx512: return words_avx512(stream, first, blocks, out);
    case VectorLevel::avx2: return words_avx2(stream, first, blocks, out);
    case VectorLevel::baseline: break;
  }
  return 0;
}

#else

int64_t words_in_vectors(RandomStream, uint64_t, int64_t, uint32_t*) { return 0; }

#endif

}  // namespace

void philox_words(RandomStream stream, uint64_t first, int64_t blocks, uint32_t* out) {
  for (int64_t i = words_in_vectors(stream, first, blocks, out); i < blocks; ++i) {
    const auto block = philox::block(stream.seed, stream.stream, first + static_cast<uint64_t>(i));
    for (int lane = 0; lane < 4; ++lane) out[4 * i + lane] = block.word[lane];
  }
}

}  // namespace espalier::detail
