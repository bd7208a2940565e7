// An attention as kernels have it.
#pragma once
#include <limits>

#include "espalier/core/philox.h"
#include "espalier/ops/attention/form.h"
#include "espalier/ops/cuda/elements.cuh"

namespace espalier::cu {

inline constexpr float log2_of_e = 1.44269504088896340736f, log_of_2 = 0.693147180559945309417f;

/// Scores of float are in units of log(2), so that their exponentials are powers of two.
template <class C>
inline constexpr C score_unit = sizeof(C) == 4 ? log2_of_e : 1;

/// 2 to the power of x, with a relative error of 2^-22; 0 for −∞.
__device__ __forceinline__ float exp2_of(float x) {
#ifdef ESPALIER_EMULATED_CUDA
  return __builtin_exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

/// What hides scores and drops weights of one head.
struct HeadMasks {
  const void* mask;      ///< of the head, null: none
  const bool* key_mask;  ///< of its batch, null: none
  unsigned long long dropout_key;
};

/// Matrices are contiguous.
struct DeviceAttention {
  int64_t batch, heads, key_heads, queries, keys, width, value_width;
  double scale, kept;  ///< `kept`: the factor of weights that dropout keeps
  int64_t past;
  int threshold;  ///< of dropout
  bool causal, drops;
  const void* mask;  ///< booleans, or reals of the operands' type; null: none
  bool mask_is_real;
  StridedWalk mask_heads;  ///< the axes of the mask before the queries
  int64_t mask_of_query, mask_of_key;
  const bool* key_mask;  ///< [batch, keys]; null: none
  const int64_t* dropout_keys;

  /// The first head of a batch that a head is in has number head / heads.
  __device__ int64_t key_head(int64_t head) const {
    const int64_t row = divide(head, heads);
    return row * key_heads + divide(head - row * heads, heads / key_heads);
  }
  /// How many keys the queries before `query_end` see, from the first one on.
  __device__ int64_t seen(int64_t query_end) const {
    return causal && query_end + past < keys ? query_end + past : keys;
  }
  /// `T`: the type of the operands.
  template <class T>
  __device__ HeadMasks masks_of(int64_t head) const {
    HeadMasks m{};
    if (mask) {
      const int64_t at = mask_heads.offset(head);
      m.mask = mask_is_real ? static_cast<const void*>(static_cast<const T*>(mask) + at)
                            : static_cast<const bool*>(mask) + at;
    }
    if (key_mask) m.key_mask = key_mask + divide(head, heads) * keys;
    if (drops) m.dropout_key = static_cast<unsigned long long>(dropout_keys[head]);
    return m;
  }
  /// The score of a query and a key that are there, of which `product` is the scaled product; −∞ if it does
  /// not see the key.
  template <class T>
  __device__ Computed<T> masked(const HeadMasks& m, int64_t query, int64_t key, Computed<T> product) const {
    constexpr Computed<T> hidden = -std::numeric_limits<Computed<T>>::infinity();
    if (causal && key > query + past) return hidden;
    if (m.key_mask && !m.key_mask[key]) return hidden;
    if (!m.mask) return product;
    const int64_t at = query * mask_of_query + key * mask_of_key;
    if (mask_is_real) return product + static_cast<Computed<T>>(static_cast<const T*>(m.mask)[at]);
    return static_cast<const bool*>(m.mask)[at] ? product : hidden;
  }
  /// Which of the weights of four queries and a key dropout keeps, in the lowest bits, as on the CPU. `query`
  /// is the first of them, a multiple of 4.
  __device__ unsigned keeps(const HeadMasks& m, int64_t query, int64_t key) const {
    const int64_t number = key * ((queries + 3) / 4) + query / 4;
    const philox::Block block = philox::block(m.dropout_key, 0, static_cast<unsigned long long>(number));
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      bits |= static_cast<unsigned>(philox::high_bits(block.word[i]) < threshold) << i;
    return bits;
  }
  /// The factor of dropout of one weight.
  template <class C>
  __device__ C factor(const HeadMasks& m, int64_t query, int64_t key) const {
    if (!drops) return C(1);
    return keeps(m, query / 4 * 4, key) >> query % 4 & 1 ? static_cast<C>(kept) : C(0);
  }
};

/// The operands of the gradients of q, k and v.
template <class T, class C>
struct BackwardOperands {
  const T *g, *q, *k, *v;
  /// Of each query: the logarithm of its sum of exponentials, in the unit of scores, and Σ g · y.
  const Several<C, 2>* terms;
};

}  // namespace espalier::cu
