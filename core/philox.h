// The random numbers of Espalier: pure functions of (seed, stream, index), for the CPU and for CUDA. No
// includes: the text is also compiled at run time.
//
// Element i of a stream takes one 32-bit word, lane i % 4 of Philox's block i / 4; an element of 64 bits
// takes the words 2i and 2i + 1.
#pragma once

#ifndef ESPALIER_HD
#ifdef __CUDACC__
#define ESPALIER_HD __host__ __device__ __forceinline__
#else
#define ESPALIER_HD inline __attribute__((always_inline))
#endif
#endif

namespace espalier::philox {

struct Block {
  unsigned int word[4];
};

inline constexpr int rounds = 10;
inline constexpr unsigned int factor0 = 0xD2511F53u;
inline constexpr unsigned int factor1 = 0xCD9E8D57u;
inline constexpr unsigned int key_step0 = 0x9E3779B9u;
inline constexpr unsigned int key_step1 = 0xBB67AE85u;

/// Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
ESPALIER_HD Block philox4x32(Block counter, unsigned int key0, unsigned int key1) {
  unsigned int a = counter.word[0], b = counter.word[1], c = counter.word[2], d = counter.word[3];
  for (int round = 0; round < rounds; ++round) {
    const unsigned long long first = 1ull * factor0 * a;
    const unsigned long long second = 1ull * factor1 * c;
    a = static_cast<unsigned int>(second >> 32) ^ b ^ key0;
    b = static_cast<unsigned int>(second);
    c = static_cast<unsigned int>(first >> 32) ^ d ^ key1;
    d = static_cast<unsigned int>(first);
    key0 += key_step0;
    key1 += key_step1;
  }
  return {{a, b, c, d}};
}

/// Four words: the key is the seed, the counter's halves are the block's index and the stream.
ESPALIER_HD Block block(unsigned long long seed, unsigned long long stream, unsigned long long index) {
  return philox4x32({{static_cast<unsigned int>(index), static_cast<unsigned int>(index >> 32),
                      static_cast<unsigned int>(stream), static_cast<unsigned int>(stream >> 32)}},
                    static_cast<unsigned int>(seed), static_cast<unsigned int>(seed >> 32));
}

// Words are cut to fewer bits, and so fit in a signed int: every instruction set converts and compares those.

/// The 24 high bits.
ESPALIER_HD int high_bits(unsigned int word) { return static_cast<int>(word >> 8); }

/// In [0, 1): one of 2^24 numbers, all as likely.
ESPALIER_HD float uniform_float(unsigned int word) { return static_cast<float>(high_bits(word)) * 0x1p-24f; }

/// In [0, 1): one of 2^53 numbers, all as likely.
ESPALIER_HD double uniform_double(unsigned int first, unsigned int second) {
  return (static_cast<double>(static_cast<int>(first >> 5)) * 0x1p26 + static_cast<int>(second >> 6)) *
         0x1p-53;
}

/// In (0, 1], with 31 bits: a logarithm shows how small the smallest are.
ESPALIER_HD float positive_float(unsigned int word) {
  return static_cast<float>(static_cast<int>(word >> 1)) * 0x1p-31f + 0x1p-32f;
}
/// In (0, 1], with 53 bits.
ESPALIER_HD double positive_double(unsigned int first, unsigned int second) {
  return uniform_double(first, second) + 0x1p-53;
}

/// An element is kept if `high_bits` of its word are below this: with `probability`, rounded up to 24 bits.
ESPALIER_HD int keep_threshold(double probability) {
  const double scaled = probability * 0x1p24;
  const int below = static_cast<int>(scaled);
  return below < scaled ? below + 1 : below;
}

}  // namespace espalier::philox
