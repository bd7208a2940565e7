// Scores of attention as tensor cores leave them: which ones are seen, and what masks and dropout make of
// them.
#pragma once
#include <limits>

#include "espalier/ops/attention/cuda/device_attention.cuh"
#include "espalier/ops/attention/cuda/matrix_tiles.cuh"

namespace espalier::cu {

inline constexpr float hidden_score = -std::numeric_limits<float>::infinity();

/// How products become scores, in units of log(2). In attention without masks the left operand is negated for
/// a negative scale, so that the largest product has the largest score: `factor` is above 0.
struct ScoreUnits {
  bool negated;
  float factor;

  __device__ ScoreUnits(const DeviceAttention& a, bool masked) {
    const float scale = static_cast<float>(a.scale) * log2_of_e;
    negated = !masked && scale < 0;
    factor = masked ? scale : fmaxf(fabsf(scale), std::numeric_limits<float>::min());
  }
};

/// `R` rows and N columns of the scores, of which queries are rows, or the columns where it is `transposed`:
/// what is added to a score, times log2(e), and whether dropout keeps its weight. Rows are longer, so that
/// lanes read different banks.
template <int R, int N, bool transposed>
struct MaskTile {
  alignas(16) float added[R][N + 8];
  unsigned char kept[R][N + 8];

  /// For the first query and the first key of the tile. All threads of the block call it, then a barrier.
  template <class T>
  __device__ void fill(const DeviceAttention& a, const HeadMasks& masks, int64_t query, int64_t key) {
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < R * N; i += matrix_threads) {
      const int row = transposed ? i % R : i / N, column = transposed ? i / R : i % N;
      const int64_t q = query + (transposed ? column : row), k = key + (transposed ? row : column);
      added[row][column] =
          q < a.queries && k < a.keys ? a.masked<T>(masks, q, k, 0.0f) * log2_of_e : hidden_score;
    }
    if (!a.drops) return;
    for (int i = static_cast<int>(threadIdx.x); i < R * N / 4; i += matrix_threads) {
      const int row = transposed ? i % R : i / N * 4, column = transposed ? i / R * 4 : i % N;
      const unsigned bits =
          a.keeps(masks, query + (transposed ? column : row), key + (transposed ? row : column));
#pragma unroll
      for (int j = 0; j < 4; ++j)
        kept[row + (transposed ? 0 : j)][column + (transposed ? j : 0)] = bits >> j & 1;
    }
  }
};

}  // namespace espalier::cu
