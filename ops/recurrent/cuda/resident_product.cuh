// Products of a tile of 16 rows with columns whose weights stay in a block's shared memory: the rows change
// with every product, the weights do not. A product leaves several partial sums for each row and column, of
// terms that are added in a fixed order.
#pragma once
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/matrix_unit.cuh"

namespace espalier::cu {

inline constexpr int resident_threads = 256, resident_rows = 16;

/// Partial sums [part][row][column] in shared memory. Rows are 4 longer, so that they start in several banks.
template <int columns>
struct PartialSums {
  static constexpr int row_step = columns + 4;
  static constexpr size_t bytes(int parts) {
    return size_t{4} * static_cast<size_t>(parts * resident_rows * row_step);
  }

  float* start;

  __device__ __forceinline__ float& at(int part, int row, int column) const {
    return start[(part * resident_rows + row) * row_step + column];
  }
  __device__ __forceinline__ float total(int parts, int row, int column) const {
    float sum = at(0, row, column);
    for (int part = 1; part < parts; ++part) sum += at(part, row, column);
    return sum;
  }
};

/// By tensor cores: of 16-bit elements, or of floats in TF32. Each warp has every eighth chunk of 64 bytes of
/// the rows. Of a chunk, which is two steps of the instruction, a lane has 16 adjacent bytes, since terms may
/// be in any order. The weights, left operands, lie in the order in which lanes take them.
template <class T, int columns>
struct MatrixProduct {
  static constexpr int tiles = columns / 16, parts = resident_threads / 32, depth = 4;
  static constexpr int in_vector = vector_width<T>, in_chunk = 4 * in_vector, in_word = in_vector / 4;

  static __host__ __device__ int64_t chunks(int64_t inner) { return (inner + in_chunk - 1) / in_chunk; }
  static size_t weight_bytes(int64_t inner) {
    return static_cast<size_t>(chunks(inner)) * tiles * 2 * 32 * sizeof(uint4);
  }
  static constexpr size_t scratch_bytes = PartialSums<columns>::bytes(parts);

  /// `weight(column, k)` is an element, 0 outside.
  template <class F>
  static __device__ void keep_weights(void* weights, int64_t inner, F&& weight) {
    const int64_t vectors = chunks(inner) * tiles * 2 * 32;
    for (int64_t i = threadIdx.x; i < vectors; i += resident_threads) {
      const int lane = static_cast<int>(i % 32), step = static_cast<int>(i / 32 % 2);
      const int tile = static_cast<int>(i / 64 % tiles);
      const int64_t chunk = i / (64 * tiles);
      uint32_t words[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const int column = 16 * tile + lane / 4 + w % 2 * 8;
        const int64_t k = chunk * in_chunk + (lane % 4 * 4 + 2 * step + w / 2) * in_word;
        if constexpr (sizeof(T) == 2)
          words[w] =
              pack<T>(static_cast<float>(weight(column, k)), static_cast<float>(weight(column, k + 1)));
        else
          words[w] = to_tf32(weight(column, k));
      }
      static_cast<uint4*>(weights)[i] = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }

  static __device__ __forceinline__ void unpack(const uint4& words, uint32_t (&to)[4]) {
    const uint32_t each[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) to[w] = sizeof(T) == 2 ? each[w] : to_tf32(__uint_as_float(each[w]));
  }

  /// `row(r)` is where a row of the tile lies, aligned to 16 bytes, or null for zeros.
  template <class F>
  static __device__ __forceinline__ void multiply(void* scratch, const void* weights, int64_t inner,
                                                  F&& row) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int g = lane / 4, t = lane % 4;
    const uint4* left = static_cast<const uint4*>(weights) + lane;
    const T* const rows[2] = {row(g), row(g + 8)};
    const int count = static_cast<int>(chunks(inner));
    float sums[tiles][2][4] = {};
    uint4 next[depth][2];
    const auto fetch = [&](int first) {
#pragma unroll
      for (int d = 0; d < depth; ++d)
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const int64_t k = int64_t{first + d * parts} * in_chunk + t * in_vector;
          next[d][n] = make_uint4(0, 0, 0, 0);
          if (rows[n] && k < inner) next[d][n] = __ldcg(reinterpret_cast<const uint4*>(rows[n] + k));
        }
    };
    fetch(warp);
    for (int first = warp; first < count; first += parts * depth) {
      uint32_t right[depth][2][4];
#pragma unroll
      for (int d = 0; d < depth; ++d)
#pragma unroll
        for (int n = 0; n < 2; ++n) unpack(next[d][n], right[d][n]);
      if (first + parts * depth < count) fetch(first + parts * depth);
#pragma unroll
      for (int d = 0; d < depth; ++d) {
        const int chunk = first + d * parts;
        if (chunk >= count) break;
#pragma unroll
        for (int step = 0; step < 2; ++step)
#pragma unroll
          for (int tile = 0; tile < tiles; ++tile) {
            const uint4 words = left[((chunk * tiles + tile) * 2 + step) * 32];
            const uint32_t a[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
            for (int n = 0; n < 2; ++n)
              multiply_add<T>(sums[tile][n], a, right[d][n][2 * step], right[d][n][2 * step + 1]);
          }
      }
    }
    const PartialSums<columns> to{static_cast<float*>(scratch)};
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile)
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          to.at(warp, 8 * n + 2 * t + i % 2, 16 * tile + g + i / 2 * 8) = sums[tile][n][i];
  }
};

/// Of floats, in float32. Rows are staged in shared memory, 512 elements at a time, where the partial sums
/// take their place in the end. A thread multiplies 4 rows and 8 columns; `slice` threads have all.
template <int columns>
struct ScalarProduct {
  static constexpr int slice = columns / 2, parts = resident_threads / slice;
  static constexpr int staged = 128, stage_step = resident_rows + 1;  ///< vectors of 4 elements
  static constexpr int copies = staged * resident_rows / resident_threads;

  using Vector = Several<float, 4>;
  static size_t weight_bytes(int64_t inner) {
    return static_cast<size_t>(divide_up(inner, 4)) * columns * sizeof(Vector);
  }
  static constexpr size_t scratch_bytes =
      std::max(PartialSums<columns>::bytes(parts), staged* stage_step * sizeof(Vector));

  template <class F>
  static __device__ void keep_weights(void* weights, int64_t inner, F&& weight) {
    for (int64_t i = threadIdx.x; i < (inner + 3) / 4 * columns; i += resident_threads) {
      Vector vector;
#pragma unroll
      for (int k = 0; k < 4; ++k) vector.at[k] = weight(static_cast<int>(i % columns), i / columns * 4 + k);
      static_cast<Vector*>(weights)[i] = vector;
    }
  }

  template <class F>
  static __device__ __forceinline__ void multiply(void* scratch, const void* weights, int64_t inner,
                                                  F&& row) {
    const int thread = static_cast<int>(threadIdx.x), part = thread / slice;
    const int of_rows = thread % slice % 4, of_columns = thread % slice / 4;
    const int vectors = static_cast<int>((inner + 3) / 4);
    auto* const stage = static_cast<Vector*>(scratch);
    const auto* const right = static_cast<const Vector*>(weights) + of_columns;
    Vector next[copies];
    const auto fetch = [&](int first) {
#pragma unroll
      for (int i = 0; i < copies; ++i) {
        const int index = thread + i * resident_threads, vector = first + index % staged;
        const float* const from = row(index / staged);
        float4 words = make_float4(0, 0, 0, 0);
        if (from && vector < vectors) words = __ldcg(reinterpret_cast<const float4*>(from) + vector);
        next[i] = {{words.x, words.y, words.z, words.w}};
      }
    };
    float sums[4][8] = {};
    fetch(0);
    for (int first = 0; first < vectors; first += staged) {
      __syncthreads();  // all have read what was there
#pragma unroll
      for (int i = 0; i < copies; ++i) {
        const int index = thread + i * resident_threads;
        stage[index % staged * stage_step + index / staged] = next[i];
      }
      __syncthreads();
      if (first + staged < vectors) fetch(first + staged);
      const int count = part < parts ? min(staged, vectors - first) : 0;
      for (int v = part; v < count; v += parts) {
        Vector left[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) left[r] = stage[v * stage_step + of_rows + 4 * r];
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          const Vector weight = right[(first + v) * columns + columns / 8 * c];
#pragma unroll
          for (int r = 0; r < 4; ++r)
#pragma unroll
            for (int k = 0; k < 4; ++k) sums[r][c] += left[r].at[k] * weight.at[k];
        }
      }
    }
    __syncthreads();
    if (part >= parts) return;
    const PartialSums<columns> to{static_cast<float*>(scratch)};
#pragma unroll
    for (int r = 0; r < 4; ++r)
#pragma unroll
      for (int c = 0; c < 8; ++c) to.at(part, of_rows + 4 * r, of_columns + columns / 8 * c) = sums[r][c];
  }
};

}  // namespace espalier::cu
