// A tile of transposed scores: a row for each key, with the queries side by side.
#pragma once
#include <algorithm>
#include <limits>

#include "espalier/core/cpu/philox_words.h"
#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/philox.h"
#include "espalier/core/scalar_math.h"
#include "espalier/ops/attention/operands.h"
#include "espalier/ops/matmul/panel_product.h"

namespace espalier {

/// Queries and keys of a tile. Rows of tiles are a line longer, so that columns are in several cache sets.
inline constexpr int64_t tile_queries = 64, tile_keys = 120;
template <class T>
inline constexpr int64_t tile_row = tile_queries + panel_lanes<T>;

/// Which queries and keys a tile has.
struct TilePlace {
  int64_t batch, head;
  int64_t query, queries;  ///< the first, and how many
  int64_t key, keys;
};

/// exp(x) for x that is not above 0, or NaN; 0 below the normal numbers.
template <class T>
[[gnu::always_inline]] inline T exp_below_zero(T x) {
  using F = math::Format<T>;
  constexpr T low = sizeof(T) == 4 ? T(-87) : T(-708);
  const auto [y, n] = math::split_exp(x < low ? low : x);
  const T result = y * math::from_bits<T>((n + F::exponent_bias) << F::mantissa_bits);
  return x < low ? T(0) : result;
}

/// to[column][row] = scale · from[row][column]; rows beyond `rows` are 0.
template <class T>
void pack_transposed(const T* from, int64_t ld, int64_t rows, int64_t columns, T scale, T* to) {
  const int64_t padded = in_lanes<T>(rows);
  vectorized([=]() __attribute__((always_inline)) {
    for (int64_t c = 0; c < columns; ++c) {
      T* out = to + c * tile_queries;
      for (int64_t r = 0; r < rows; ++r) out[r] = from[r * ld + c] * scale;
      for (int64_t r = rows; r < padded; ++r) out[r] = T(0);
    }
  });
}

/// Rows of a matrix that are padded to whole vectors: the matrix itself if they are, else a copy in `memory`.
template <class T>
struct PaddedRows {
  const T* at;
  int64_t ld;

  PaddedRows(const T* from, int64_t from_ld, int64_t rows, int64_t columns, T* memory)
      : at(from), ld(from_ld) {
    const int64_t padded = in_lanes<T>(columns);
    if (padded == columns) return;
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(from + r * from_ld, columns, memory + r * padded);
      std::fill(memory + r * padded + columns, memory + (r + 1) * padded, T(0));
    }
    at = memory;
    ld = padded;
  }
};

/// Writes −∞ where a query does not see a key, and adds real masks.
template <class T>
void mask_tile(const AttentionOperands& o, const TilePlace& p, T* tile) {
  constexpr T hidden = -std::numeric_limits<T>::infinity();
  if (o.form.masked) {
    const int64_t of_query = o.mask.strides()[o.mask.rank() - 2],
                  of_key = o.mask.strides()[o.mask.rank() - 1];
    const int64_t from = start_of(o.mask, 2, p.batch, p.head) + p.query * of_query + p.key * of_key;
    const int64_t queries = p.queries, keys = p.keys;
    if (o.mask.dtype() == DType::boolean) {
      const bool* seen = static_cast<const bool*>(o.mask.address()) + from;
      for (int64_t k = 0; k < keys; ++k)
        for (int64_t q = 0; q < queries; ++q)
          if (!seen[k * of_key + q * of_query]) tile[k * tile_row<T> + q] = hidden;
    } else {
      const T* bias = static_cast<const T*>(o.mask.address()) + from;
      for (int64_t k = 0; k < keys; ++k)
        for (int64_t q = 0; q < queries; ++q) tile[k * tile_row<T> + q] += bias[k * of_key + q * of_query];
    }
  }
  if (o.form.keys_masked) {
    const int64_t step = o.key_mask.strides()[o.key_mask.rank() - 1];
    const bool* there =
        static_cast<const bool*>(o.key_mask.address()) + start_of(o.key_mask, 1, p.batch) + p.key * step;
    for (int64_t k = 0; k < p.keys; ++k)
      if (!there[k * step]) std::fill_n(tile + k * tile_row<T>, p.queries, hidden);
  }
  if (o.form.causal)
    for (int64_t k = 0; k < p.keys; ++k)
      if (const int64_t blind = p.key + k - o.form.past - p.query; blind > 0)
        std::fill_n(tile + k * tile_row<T>, std::min(blind, p.queries), hidden);
}

/// Of the keys, those that a causal attention shows to the queries before `query_end`.
inline int64_t seen_keys(const AttentionOperands& o, int64_t query_end) {
  return o.form.causal ? std::min(o.sizes.keys, query_end + o.form.past) : o.sizes.keys;
}

/// The factors of dropout: 1 / (1 − rate), or 0. Each weight has a number of its own in the stream of the
/// head's key: those of four queries that follow each other and one key are a block of Philox.
template <class T>
void dropout_tile(const AttentionOperands& o, const TilePlace& p, uint32_t* words, T* factors) {
  const int64_t key = static_cast<const int64_t*>(o.keys.address())[start_of(o.keys, 0, p.batch, p.head)];
  const RandomStream stream{.seed = static_cast<uint64_t>(key)};
  const int64_t blocks_of_key = (o.sizes.queries + 3) / 4, blocks = (p.queries + 3) / 4;
  const double keep = 1 - o.form.dropout;
  const int threshold = philox::keep_threshold(keep);
  const T kept = static_cast<T>(1 / keep);
  for (int64_t k = 0; k < p.keys; ++k) {
    detail::philox_words(stream, static_cast<uint64_t>((p.key + k) * blocks_of_key + p.query / 4), blocks,
                         words);
    T* row = factors + k * tile_row<T>;
    const int64_t n = p.queries;
    vectorized([=]() __attribute__((always_inline)) {
      for (int64_t q = 0; q < n; ++q) row[q] = philox::high_bits(words[q]) < threshold ? kept : T(0);
    });
  }
}

}  // namespace espalier
