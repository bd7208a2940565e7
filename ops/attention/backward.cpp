// Gradients of attention by tiles, whose weights are computed again: Dao, "FlashAttention-2" (2023),
// algorithm 2.
#include "espalier/core/cpu/parallel.h"
#include "espalier/ops/attention/score_tile.h"

namespace espalier {

namespace {

/// A matrix of one head.
template <class T>
struct Rows {
  const T* at;
  int64_t ld;

  Rows(const Tensor& x, int64_t batch, int64_t head)
      : at(static_cast<const T*>(x.address()) + start_of(x, 2, batch, head)), ld(x.strides()[x.rank() - 2]) {}
  const T* row(int64_t i) const { return at + i * ld; }
};

template <class T>
class BackwardTiles {
 public:
  BackwardTiles(const AttentionSizes& sizes, Scratch<T>& scratch)
      : width_(in_lanes<T>(sizes.width)),
        value_width_(in_lanes<T>(sizes.value_width)),
        dk_(scratch.take(sizes.keys * width_)),
        dv_(scratch.take(sizes.keys * value_width_)),
        queries_(scratch.take(sizes.width * tile_queries)),
        gradients_(scratch.take(sizes.value_width * tile_queries)),
        weights_(scratch.take(tile_keys * tile_row<T>)),
        slopes_(scratch.take(tile_keys * tile_row<T>)),
        factors_(scratch.take(tile_keys * tile_row<T>)),
        dq_(scratch.take(tile_queries * width_)),
        query_rows_(padding(scratch, sizes.width, width_, tile_queries)),
        key_rows_(padding(scratch, sizes.width, width_, tile_keys)),
        gradient_rows_(padding(scratch, sizes.value_width, value_width_, tile_queries)),
        products_(scratch.take(tile_queries)),
        log_sums_(scratch.take(tile_queries)),
        words_(reinterpret_cast<uint32_t*>(scratch.take(tile_queries))) {}

  /// The gradients of a head of keys, and of the queries that it serves.
  void run(const AttentionOperands& o, const Tensor& g, const Tensor& out, const T* log_sums, int64_t batch,
           int64_t key_head, T* dq, T* dk, T* dv) {
    const AttentionSizes& s = o.sizes;
    std::fill_n(dk_, s.keys * width_, T(0));
    std::fill_n(dv_, s.keys * value_width_, T(0));
    for (int64_t head = key_head * s.group(); head < (key_head + 1) * s.group(); ++head)
      for (int64_t query = 0; query < s.queries; query += tile_queries) {
        const int64_t first = (batch * s.heads + head) * s.queries + query;
        const TilePlace place{.batch = batch,
                              .head = head,
                              .query = query,
                              .queries = std::min(tile_queries, s.queries - query),
                              .key = 0,
                              .keys = 0};
        run_tile(o, place, key_head, g, out, log_sums + first, dq + first * s.width);
      }
    const int64_t row = (batch * s.key_heads + key_head) * s.keys;
    copy(dk_, width_, s.keys, s.width, static_cast<T>(o.form.scale), dk + row * s.width);
    copy(dv_, value_width_, s.keys, s.value_width, T(1), dv + row * s.value_width);
  }

 private:
  static T* padding(Scratch<T>& scratch, int64_t columns, int64_t padded, int64_t rows) {
    return scratch.take(padded == columns ? 0 : rows * padded);
  }
  static void copy(const T* from, int64_t ld, int64_t rows, int64_t columns, T factor, T* to) {
    vectorized([=]() __attribute__((always_inline)) {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) to[r * columns + c] = from[r * ld + c] * factor;
    });
  }

  void run_tile(const AttentionOperands& o, TilePlace p, int64_t key_head, const Tensor& g, const Tensor& out,
                const T* log_sums, T* dq) {
    const AttentionSizes& s = o.sizes;
    const Rows<T> q(o.q, p.batch, p.head), k(o.k, p.batch, key_head), v(o.v, p.batch, key_head),
        dy(g, p.batch, p.head), y(out, p.batch, p.head);
    const int64_t lanes = in_lanes<T>(p.queries);
    pack_transposed(q.row(p.query), q.ld, p.queries, s.width, static_cast<T>(o.form.scale), queries_);
    pack_transposed(dy.row(p.query), dy.ld, p.queries, s.value_width, T(1), gradients_);
    const PaddedRows<T> query_rows(q.row(p.query), q.ld, p.queries, s.width, query_rows_);
    const PaddedRows<T> gradient_rows(dy.row(p.query), dy.ld, p.queries, s.value_width, gradient_rows_);
    find_products(p.queries, s.value_width, dy.row(p.query), dy.ld, y.row(p.query), y.ld);
    std::fill_n(log_sums_, tile_queries, std::numeric_limits<T>::infinity());
    std::copy_n(log_sums, p.queries, log_sums_);
    std::fill_n(dq_, p.queries * width_, T(0));
    const int64_t keys = seen_keys(o, p.query + p.queries);
    for (p.key = 0; p.key < keys; p.key += p.keys) {
      p.keys = std::min(tile_keys, keys - p.key);
      multiply<T>({.m = p.keys,
                   .n = lanes,
                   .k = s.width,
                   .a = k.row(p.key),
                   .a_row = k.ld,
                   .a_step = 1,
                   .b = queries_,
                   .ldb = tile_queries,
                   .c = weights_,
                   .ldc = tile_row<T>});
      mask_tile(o, p, weights_);
      multiply<T>({.m = p.keys,
                   .n = lanes,
                   .k = s.value_width,
                   .a = v.row(p.key),
                   .a_row = v.ld,
                   .a_step = 1,
                   .b = gradients_,
                   .ldb = tile_queries,
                   .c = slopes_,
                   .ldc = tile_row<T>});
      find_slopes(o, p);
      multiply<T>({.m = p.keys,
                   .n = value_width_,
                   .k = p.queries,
                   .a = weights_,
                   .a_row = tile_row<T>,
                   .a_step = 1,
                   .b = gradient_rows.at,
                   .ldb = gradient_rows.ld,
                   .c = dv_ + p.key * value_width_,
                   .ldc = value_width_,
                   .add = true});
      multiply<T>({.m = p.keys,
                   .n = width_,
                   .k = p.queries,
                   .a = slopes_,
                   .a_row = tile_row<T>,
                   .a_step = 1,
                   .b = query_rows.at,
                   .ldb = query_rows.ld,
                   .c = dk_ + p.key * width_,
                   .ldc = width_,
                   .add = true});
      const PaddedRows<T> key_rows(k.row(p.key), k.ld, p.keys, s.width, key_rows_);
      multiply<T>({.m = p.queries,
                   .n = width_,
                   .k = p.keys,
                   .a = slopes_,
                   .a_row = 1,
                   .a_step = tile_row<T>,
                   .b = key_rows.at,
                   .ldb = key_rows.ld,
                   .c = dq_,
                   .ldc = width_,
                   .add = true});
    }
    copy(dq_, width_, p.queries, s.width, static_cast<T>(o.form.scale), dq);
  }

  /// Σ g · y of each query, which is what its weights times their gradients add up to.
  void find_products(int64_t queries, int64_t width, const T* g, int64_t of_g, const T* y, int64_t of_y) {
    std::fill_n(products_, tile_queries, T(0));
    for (int64_t q = 0; q < queries; ++q) {
      T sum[8] = {};
      int64_t i = 0;
      for (; i + 8 <= width; i += 8)
        for (int64_t lane = 0; lane < 8; ++lane) sum[lane] += g[q * of_g + i + lane] * y[q * of_y + i + lane];
      for (; i < width; ++i) sum[0] += g[q * of_g + i] * y[q * of_y + i];
      for (const T part : sum) products_[q] += part;
    }
  }

  /// Scores become weights, as the values were summed with them, and gradients of weights those of scores.
  void find_slopes(const AttentionOperands& o, const TilePlace& p) {
    T *const weights = weights_, *const slopes = slopes_, *const factors = factors_;
    const T *const products = products_, *const log_sums = log_sums_;
    const int64_t keys = p.keys, n = in_lanes<T>(p.queries);
    const bool drops = o.form.dropout > 0;
    if (drops) dropout_tile(o, p, words_, factors_);
    vectorized([=]() __attribute__((always_inline)) {
      for (int64_t k = 0; k < keys; ++k) {
        T *weight = weights + k * tile_row<T>, *slope = slopes + k * tile_row<T>;
        if (drops) {
          const T* factor = factors + k * tile_row<T>;
#pragma GCC ivdep
          for (int64_t q = 0; q < n; ++q) {
            const T x = exp_below_zero(weight[q] - log_sums[q]);
            slope[q] = x * (slope[q] * factor[q] - products[q]);
            weight[q] = x * factor[q];
          }
        } else {
#pragma GCC ivdep
          for (int64_t q = 0; q < n; ++q) {
            const T x = exp_below_zero(weight[q] - log_sums[q]);
            slope[q] = x * (slope[q] - products[q]);
            weight[q] = x;
          }
        }
      }
    });
  }

  int64_t width_, value_width_;
  T *dk_, *dv_, *queries_, *gradients_, *weights_, *slopes_, *factors_, *dq_;
  T *query_rows_, *key_rows_, *gradient_rows_, *products_, *log_sums_;
  uint32_t* words_;
};

template <class T>
int64_t gradient_scratch_of_thread(const AttentionSizes& sizes) {
  Scratch<T> count;
  const BackwardTiles<T> tiles(sizes, count);
  return count.used();
}

}  // namespace

template <class T>
int64_t backward_scratch(const AttentionSizes& sizes, int threads) {
  return gradient_scratch_of_thread<T>(sizes) * threads;
}

template <class T>
void attend_back(const AttentionOperands& o, const Tensor& g, const Tensor& out, const T* log_sums, T* dq,
                 T* dk, T* dv, T* scratch, int threads) {
  const AttentionSizes& s = o.sizes;
  const int64_t heads = s.batch * s.key_heads, of_thread = gradient_scratch_of_thread<T>(s);
  const int64_t parts = work_parts(s, 5, heads, threads);
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      Scratch<T> own(scratch + part * of_thread);
      BackwardTiles<T> tiles(s, own);
      for (int64_t i = heads * part / parts; i < heads * (part + 1) / parts; ++i)
        tiles.run(o, g, out, log_sums, i / s.key_heads, i % s.key_heads, dq, dk, dv);
    }
  });
}

template int64_t backward_scratch<float>(const AttentionSizes&, int);
template int64_t backward_scratch<double>(const AttentionSizes&, int);
template void attend_back(const AttentionOperands&, const Tensor&, const Tensor&, const float*, float*,
                          float*, float*, float*, int);
template void attend_back(const AttentionOperands&, const Tensor&, const Tensor&, const double*, double*,
                          double*, double*, double*, int);

}  // namespace espalier
