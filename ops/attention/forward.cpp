// Attention by tiles, as FlashAttention: Dao, "FlashAttention-2: faster attention with better parallelism and
// work partitioning" (2023), algorithm 1.
#include <cmath>

#include "espalier/core/cpu/parallel.h"
#include "espalier/ops/attention/score_tile.h"

namespace espalier {

namespace {

template <class T>
class ForwardTiles {
 public:
  /// Without operands it counts the scratch memory.
  ForwardTiles(const AttentionSizes& sizes, Scratch<T>& scratch)
      : padded_values_(in_lanes<T>(sizes.value_width)),
        queries_(scratch.take(sizes.width * tile_queries)),
        tile_(scratch.take(tile_keys * tile_row<T>)),
        factors_(scratch.take(tile_keys * tile_row<T>)),
        sums_(scratch.take(tile_queries * padded_values_)),
        values_(scratch.take(padded_values_ == sizes.value_width ? 0 : tile_keys * padded_values_)),
        largest_(scratch.take(tile_queries)),
        shift_(scratch.take(tile_queries)),
        total_(scratch.take(tile_queries)),
        words_(reinterpret_cast<uint32_t*>(scratch.take(tile_queries))) {}

  /// The outputs of the queries of a tile of one head.
  void run(const AttentionOperands& o, TilePlace p, T* out, T* log_sums) {
    const T* q = static_cast<const T*>(o.q.address()) + start_of(o.q, 2, p.batch, p.head);
    const int64_t key_head = p.head / o.sizes.group();
    const T* k = static_cast<const T*>(o.k.address()) + start_of(o.k, 2, p.batch, key_head);
    const T* v = static_cast<const T*>(o.v.address()) + start_of(o.v, 2, p.batch, key_head);
    const int64_t of_query = row_step(o.q), of_key = row_step(o.k), of_value = row_step(o.v);
    pack_transposed(q + p.query * of_query, of_query, p.queries, o.sizes.width, static_cast<T>(o.form.scale),
                    queries_);
    begin(p.queries);
    const int64_t keys = seen_keys(o, p.query + p.queries);
    for (p.key = 0; p.key < keys; p.key += p.keys) {
      p.keys = std::min(tile_keys, keys - p.key);
      multiply<T>({.m = p.keys,
                   .n = in_lanes<T>(p.queries),
                   .k = o.sizes.width,
                   .a = k + p.key * of_key,
                   .a_row = of_key,
                   .a_step = 1,
                   .b = queries_,
                   .ldb = tile_queries,
                   .c = tile_,
                   .ldc = tile_row<T>});
      mask_tile(o, p, tile_);
      raise(p.keys, p.queries);
      if (o.form.dropout > 0) drop(o, p);
      const PaddedRows<T> rows(v + p.key * of_value, of_value, p.keys, o.sizes.value_width, values_);
      multiply<T>({.m = p.queries,
                   .n = padded_values_,
                   .k = p.keys,
                   .a = tile_,
                   .a_row = 1,
                   .a_step = tile_row<T>,
                   .b = rows.at,
                   .ldb = rows.ld,
                   .c = sums_,
                   .ldc = padded_values_,
                   .add = true});
    }
    finish(p.queries, o.sizes.value_width, out, log_sums);
  }

 private:
  static int64_t row_step(const Tensor& x) { return x.strides()[x.rank() - 2]; }

  void begin(int64_t queries) {
    std::fill_n(largest_, tile_queries, -std::numeric_limits<T>::infinity());
    std::fill_n(total_, tile_queries, T(0));
    std::fill_n(sums_, queries * padded_values_, T(0));
  }
  /// Turns scores into exp(score − largest so far), adds those up, and scales the sums of earlier tiles.
  void raise(int64_t keys, int64_t queries) {
    T *const tile = tile_, *const largest = largest_, *const shift = shift_, *const total = total_;
    const int64_t n = in_lanes<T>(queries);
    vectorized([=]() __attribute__((always_inline)) {
      constexpr T none = -std::numeric_limits<T>::infinity();
      for (int64_t q = 0; q < n; ++q) shift[q] = largest[q];
      for (int64_t k = 0; k < keys; ++k) {
        const T* row = tile + k * tile_row<T>;
#pragma GCC ivdep
        for (int64_t q = 0; q < n; ++q) largest[q] = row[q] > largest[q] ? row[q] : largest[q];
      }
#pragma GCC ivdep
      for (int64_t q = 0; q < n; ++q) {
        const T below = largest[q] == none ? T(0) : largest[q];
        const T before = shift[q];
        total[q] *= exp_below_zero(before - below);
        shift[q] = before == largest[q] ? T(1) : exp_below_zero(before - below);
      }
    });
    for (int64_t q = 0; q < queries; ++q)
      if (const T factor = shift_[q]; factor != T(1)) {
        T* const sums = sums_ + q * padded_values_;
        for (int64_t i = 0; i < padded_values_; ++i) sums[i] *= factor;
      }
    vectorized([=]() __attribute__((always_inline)) {
      constexpr T none = -std::numeric_limits<T>::infinity();
      for (int64_t q = 0; q < n; ++q) shift[q] = largest[q] == none ? T(0) : largest[q];
      for (int64_t k = 0; k < keys; ++k) {
        T* row = tile + k * tile_row<T>;
#pragma GCC ivdep
        for (int64_t q = 0; q < n; ++q) {
          const T weight = exp_below_zero(row[q] - shift[q]);
          total[q] += weight;
          row[q] = weight;
        }
      }
    });
  }
  void drop(const AttentionOperands& o, const TilePlace& p) {
    dropout_tile(o, p, words_, factors_);
    T *const tile = tile_, *const factors = factors_;
    const int64_t keys = p.keys, queries = p.queries;
    for (int64_t k = 0; k < keys; ++k)
      for (int64_t q = 0; q < queries; ++q) tile[k * tile_row<T> + q] *= factors[k * tile_row<T> + q];
  }
  /// The log-sum of a query that sees no key is ∞, so that all of its weights are 0 when they are computed
  /// again.
  void finish(int64_t queries, int64_t width, T* out, T* log_sums) {
    for (int64_t q = 0; q < queries; ++q) {
      const bool none = largest_[q] == -std::numeric_limits<T>::infinity() && total_[q] == T(0);
      const T factor = none ? T(0) : 1 / total_[q];
      const T* sums = sums_ + q * padded_values_;
      T* const row = out + q * width;
      for (int64_t i = 0; i < width; ++i) row[i] = sums[i] * factor;
      log_sums[q] = none ? std::numeric_limits<T>::infinity() : largest_[q] + std::log(total_[q]);
    }
  }

  int64_t padded_values_;
  T *queries_, *tile_, *factors_, *sums_, *values_, *largest_, *shift_, *total_;
  uint32_t* words_;
};

template <class T>
int64_t scratch_of_thread(const AttentionSizes& sizes) {
  Scratch<T> count;
  const ForwardTiles<T> tiles(sizes, count);
  return count.used();
}

}  // namespace

template <class T>
int64_t forward_scratch(const AttentionSizes& sizes, int threads) {
  return scratch_of_thread<T>(sizes) * threads;
}

template <class T>
void attend(const AttentionOperands& o, T* out, T* log_sums, T* scratch, int threads) {
  const AttentionSizes& s = o.sizes;
  const int64_t tiles = (s.queries + tile_queries - 1) / tile_queries, heads = s.batch * s.heads;
  const int64_t of_thread = scratch_of_thread<T>(s);
  const int64_t parts = work_parts(s, 2, heads * tiles, threads);
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      Scratch<T> own(scratch + part * of_thread);
      ForwardTiles<T> run(s, own);
      for (int64_t i = heads * tiles * part / parts; i < heads * tiles * (part + 1) / parts; ++i) {
        const int64_t head = i / tiles, query = i % tiles * tile_queries, row = head * s.queries + query;
        run.run(o,
                {.batch = head / s.heads,
                 .head = head % s.heads,
                 .query = query,
                 .queries = std::min(tile_queries, s.queries - query),
                 .key = 0,
                 .keys = 0},
                out + row * s.value_width, log_sums + row);
      }
    }
  });
}

template int64_t forward_scratch<float>(const AttentionSizes&, int);
template int64_t forward_scratch<double>(const AttentionSizes&, int);
template void attend(const AttentionOperands&, float*, float*, float*, int);
template void attend(const AttentionOperands&, double*, double*, double*, int);

}  // namespace espalier
