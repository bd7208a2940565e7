// The loops of reductions. `seen` is the output's layout broadcast to the input's shape: strides of 0 along
// reduced axes.
#pragma once
#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

#include "espalier/ops/pointwise.h"

namespace espalier {

namespace detail {

/// What a sum adds up: the elements.
struct Itself {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return x;
  }
};

inline constexpr int64_t lanes = 32, sum_block = 2048;

/// Folds the second half of 2 · width elements into the first, and so on until `last` are left. Loops that
/// are not unrolled become vector code.
template <class F, int64_t width, int64_t last, class T>
[[gnu::always_inline]] inline void fold_halves(T* values) {
#pragma GCC unroll 1
  for (int64_t k = 0; k < width; ++k) values[k] = F()(values[k], values[k + width]);
  if constexpr (width > last) fold_halves<F, width / 2, last>(values);
}

/// Adds up Map()(row[i]) for up to `sum_block` elements to `last` sums, written at distances of `step`. 32
/// partial sums fix the order of additions for vectors of any width.
template <class Map, int64_t last, class T>
[[gnu::always_inline]] inline void sums_in_lanes(const T* row, int64_t count, T* to, int64_t step) {
  T sums[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int64_t k = 0; k < lanes; ++k) sums[k] = scalar::Add()(sums[k], Map()(row[i + k]));
  for (int64_t k = 0; i + k < count; ++k) sums[k] = scalar::Add()(sums[k], Map()(row[i + k]));
  fold_halves<scalar::Add, lanes / 2, last>(sums);
  for (int64_t k = 0; k < last; ++k) to[k * step] = sums[k];
}
template <class Map, class T>
[[gnu::always_inline]] inline T sum_in_lanes(const T* row, int64_t count) {
  T sum;
  sums_in_lanes<Map, 1>(row, count, &sum, 1);
  return sum;
}

/// The sum of Map()(x) for the elements x of a row. Blocks, and doubles where elements are added
/// one after the other, bound the rounding error.
template <class T, class Map = Itself>
T sum_row(const T* in, int64_t n, int64_t step) {
  T total{};
  double real_total = 0;
  for (int64_t begin = 0; begin < n; begin += sum_block) {
    const int64_t count = std::min(sum_block, n - begin);
    const T* row = in + begin * step;
    T part{};
    if (step == 1 && count > few) {
      T* result = &part;
      vectorized([=]() __attribute__((always_inline)) { *result = sum_in_lanes<Map>(row, count); });
    } else if constexpr (std::is_floating_point_v<T>) {
      for (int64_t i = 0; i < count; ++i) real_total += static_cast<double>(Map()(row[i * step]));
    } else {
      for (int64_t i = 0; i < count; ++i) part = scalar::Add()(part, Map()(row[i * step]));
    }
    if constexpr (std::is_floating_point_v<T>)
      real_total += static_cast<double>(part);
    else
      total = scalar::Add()(total, part);
  }
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(real_total);
  return total;
}

/// Folds a row of at least `lanes` elements to `last` ones, written at distances of `step`.
template <class F, int64_t last, class T>
[[gnu::always_inline]] inline void extremes_in_lanes(const T* row, int64_t n, T* bests, int64_t step) {
  T all[lanes];
  for (int64_t k = 0; k < lanes; ++k) all[k] = row[k];
  int64_t i = lanes;
  for (; i + lanes <= n; i += lanes)
    for (int64_t k = 0; k < lanes; ++k) all[k] = F()(all[k], row[i + k]);
  for (int64_t k = 0; i + k < n; ++k) all[k] = F()(all[k], row[i + k]);
  fold_halves<F, lanes / 2, last>(all);
  for (int64_t k = 0; k < last; ++k) bests[k * step] = all[k];
}

/// The maximum or minimum of a row of at least one element.
template <class F, class T>
T extreme_row(const T* row, int64_t n) {
  T best = row[0];
  if (n >= lanes) {
    T* result = &best;
    vectorized([=]() __attribute__((always_inline)) { extremes_in_lanes<F, 1>(row, n, result, 1); });
    return best;
  }
  for (int64_t i = 1; i < n; ++i) best = F()(best, row[i]);
  return best;
}

template <class F>
inline constexpr bool is_extreme = std::is_same_v<F, scalar::Maximum> || std::is_same_v<F, scalar::Minimum>;

template <class F, class T>
T fold_row(T first, const T* in, int64_t n, int64_t step) {
  for (int64_t i = 0; i < n; ++i) first = F()(first, in[i * step]);
  return first;
}

/// a + Map()(b).
template <class Map>
struct AddMapped {
  template <class T>
  ESPALIER_HD T operator()(T a, T b) const {
    return scalar::Add()(a, Map()(b));
  }
};

// Rows that are folded to few elements each, which vectors fold further, a row in each lane.
inline constexpr int64_t many = 64, last = 4;
/// Folds the columns into the first line, in the order of `fold_halves`.
template <class F, class T>
[[gnu::always_inline]] inline void fold_many(T (&columns)[last][many]) {
  for (int64_t r = 0; r < many; ++r) columns[0][r] = F()(columns[0][r], columns[2][r]);
  for (int64_t r = 0; r < many; ++r) columns[1][r] = F()(columns[1][r], columns[3][r]);
  for (int64_t r = 0; r < many; ++r) columns[0][r] = F()(columns[0][r], columns[1][r]);
}

/// The same as folding each of `rows` rows of n elements, which lie one behind the other in `from` at
/// distances of `step`, into to[row · to_step]: without a call for each. `fresh` ones of maxima are
/// not folded into what stands there.
template <class F, class Map, bool fresh = false, class T>
void fold_short_rows(T* to, int64_t to_step, const T* from, int64_t step, int64_t rows, int64_t n) {
  if constexpr (is_extreme<F>) {
    // Which of the last few elements is the largest cannot be predicted: vectors compare those of many rows.
    vectorized([=]() __attribute__((always_inline)) {
      T bests[last][many] = {};
      for (int64_t begin = 0; begin < rows; begin += many) {
        const int64_t count = std::min(many, rows - begin);
        for (int64_t r = 0; r < count; ++r)
          extremes_in_lanes<F, last>(from + (begin + r) * step, n, bests[0] + r, many);
        fold_many<F>(bests);
        for (int64_t r = 0; r < count; ++r) {
          T& result = to[(begin + r) * to_step];
          result = fresh ? bests[0][r] : F()(result, bests[0][r]);
        }
      }
    });
  } else {
    vectorized([=]() __attribute__((always_inline)) {
      for (int64_t r = 0; r < rows; ++r) {
        T& result = to[r * to_step];
        result = F()(result, sum_in_lanes<Map>(from + r * step, n));
      }
    });
  }
}

/// Adds Map() of the rows of a matrix to `to`. Sums are doubles, since columns are long, and their elements
/// are added one after the other.
template <class Map, class T>
void add_rows(T* to, const T* from, int64_t rows, int64_t step, int64_t columns) {
  constexpr int64_t most_columns = 512;
  double sums[most_columns];
  for (int64_t column = 0; column < columns; column += most_columns) {
    const int64_t n = std::min(most_columns, columns - column);
    const T* in = from + column;
    T* const result = to + column;
    double* const all = sums;
    vectorized([=]() __attribute__((always_inline)) {
      for (int64_t i = 0; i < n; ++i) all[i] = static_cast<double>(result[i]);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < n; ++i) all[i] += static_cast<double>(Map()(in[r * step + i]));
      for (int64_t i = 0; i < n; ++i) result[i] = static_cast<T>(all[i]);
    });
  }
}

/// out = F(out, Map(in)) for every element of `in`, whose axes with a step of 0 in `seen` are reduced. Only
/// sums map.
template <class F, class T, class Map = Itself>
void accumulate(const Tensor& in, const Layout& seen, T* out) {
  constexpr bool is_sum = std::is_same_v<F, scalar::Add>;
  const T* data = static_cast<const T*>(in.address());
  const StridedLoop<2> loop(in.shape(), {&seen.strides, &in.strides()});
  if constexpr (is_sum || is_extreme<F>)
    if (!loop.empty() && loop.axes() == 2 && loop.row_step() == std::array<int64_t, 2>{0, 1} &&
        loop.row() >= lanes && loop.row() <= sum_block) {
      const auto& step = loop.step(0);
      return fold_short_rows<F, Map>(out, step[0], data, step[1], loop.size(0), loop.row());
    }
  if constexpr (is_sum && std::is_floating_point_v<T>)
    if (!loop.empty() && loop.axes() == 2 && loop.step(0)[0] == 0 &&
        loop.row_step() == std::array<int64_t, 2>{1, 1})
      return add_rows<Map>(out, data, loop.size(0), loop.step(0)[1], loop.row());
  loop.run([&](int64_t n, const auto& at, const auto& by) {
    T* to = out + at[0];
    const T* from = data + at[1];
    if (by[0] != 0 && (by[0] != 1 || by[1] != 1)) {
      for (int64_t i = 0; i < n; ++i) to[i * by[0]] = F()(to[i * by[0]], Map()(from[i * by[1]]));
    } else if (by[0] != 0) {
      using Step = std::conditional_t<std::is_same_v<Map, Itself>, F, AddMapped<Map>>;
      binary_row<Step, T, T>(n, to, to, 1, from, 1);
    } else if constexpr (is_sum) {
      *to = scalar::Add()(*to, sum_row<T, Map>(from, n, by[1]));
    } else if (is_extreme<F> && by[1] == 1 && n > 0) {
      *to = F()(*to, extreme_row<F>(from, n));
    } else {
      *to = fold_row<F>(*to, from, n, by[1]);
    }
  });
}

/// Divides the work along a kept axis, so that threads write to disjoint elements; calls `f(slice of in,
/// slice of seen)`.
template <class F>
void split_kept_axis(const Tensor& in, const Layout& seen, F&& f) {
  size_t axis = in.rank();
  for (size_t i = 0; i < in.rank() && axis == in.rank(); ++i)
    if (seen.strides[i] != 0 && in.shape().dims()[i] > 1) axis = i;
  if (axis == in.rank()) return f(in, seen);
  const int64_t size = in.shape().dims()[axis];
  const int64_t rest = in.elements() / std::max<int64_t>(size, 1);
  parallel_for(size, std::max<int64_t>(1, grain / std::max<int64_t>(rest, 1)),
               [&](int64_t begin, int64_t end) {
                 Layout part = seen;
                 part.shape.dims()[axis] = end - begin;
                 part.offset += begin * part.strides[axis];
                 f(in.slice(static_cast<int64_t>(axis), begin, end), part);
               });
}

/// The sum of a[i] · b[i] for a row, in blocks and lanes as those of `sum_row`.
template <class T>
T sum_of_products(const T* a, const T* b, int64_t n) {
  double total = 0;
  double* const result = &total;
  vectorized([=]() __attribute__((always_inline)) {
    for (int64_t begin = 0; begin < n; begin += sum_block) {
      const int64_t end = std::min(n, begin + sum_block);
      T sums[lanes] = {};
      int64_t i = begin;
      for (; i + lanes <= end; i += lanes)
        for (int64_t k = 0; k < lanes; ++k) sums[k] += a[i + k] * b[i + k];
      for (int64_t k = 0; i + k < end; ++k) sums[k] += a[i + k] * b[i + k];
      fold_halves<scalar::Add, lanes / 2, 1>(sums);
      *result += static_cast<double>(sums[0]);
    }
  });
  return static_cast<T>(total);
}

/// The same for rows one behind the other.
template <class T>
void sum_products(const T* a, const T* b, int64_t rows, int64_t n, T* out) {
  if (rows > 1)
    return parallel_for(rows, std::max<int64_t>(1, grain / std::max<int64_t>(n, 1)),
                        [=](int64_t begin, int64_t end) {
                          for (int64_t r = begin; r < end; ++r)
                            out[r] = sum_of_products(a + r * n, b + r * n, n);
                        });
  if (rows == 0) return;
  const int64_t chunks = (n + grain - 1) / grain;
  std::vector<T> parts(static_cast<size_t>(chunks));
  parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      parts[static_cast<size_t>(c)] =
          sum_of_products(a + c * grain, b + c * grain, std::min(grain, n - c * grain));
  });
  *out = sum_row(parts.data(), chunks, 1);
}

}  // namespace detail

/// Sums Map()(x) for the elements x of `in`, of type T, into `out`, which is overwritten.
template <class T, class Map = detail::Itself>
void reduce_sum_of(const Tensor& in, const Layout& seen, Tensor& out) {
  T* data = static_cast<T*>(out.address());
  if (out.elements() == 1 && in.contiguous() && in.elements() > 2 * detail::grain) {
    // The size of chunks does not depend on the number of threads, so the sum is the same on every machine.
    const int64_t n = in.elements(), chunks = (n + detail::grain - 1) / detail::grain;
    const T* from = static_cast<const T*>(in.address());
    std::vector<T> parts(static_cast<size_t>(chunks));
    parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c)
        parts[static_cast<size_t>(c)] = detail::sum_row<T, Map>(
            from + c * detail::grain, std::min(detail::grain, n - c * detail::grain), 1);
    });
    *data = detail::sum_row(parts.data(), chunks, 1);
    return;
  }
  std::fill_n(data, out.elements(), T{});
  detail::split_kept_axis(in, seen, [&](const Tensor& part, const Layout& to) {
    detail::accumulate<scalar::Add, T, Map>(part, to, data + to.offset);
  });
}

/// Sums `in` into `out`, which is overwritten. Numbers only.
void reduce_sum(const Tensor& in, const Layout& seen, Tensor& out);

/// Folds `in` into `out` with F, beginning with the first element along the reduced axes. Not for empty
/// inputs.
template <class F>
void reduce_with(const Tensor& in, const Layout& seen, Tensor& out) {
  if (in.elements() == 0) return;
  visit(in.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (Numbers::accepts<T>) {
      T* data = static_cast<T*>(out.address());
      const int64_t n = in.rank() ? in.shape()[-1] : 1, rows = in.elements() / n;
      if (detail::is_extreme<F> && in.contiguous() && out.elements() == rows && n >= detail::lanes &&
          n <= detail::sum_block && seen.strides.back() == 0) {  // the last axis alone
        const T* from = static_cast<const T*>(in.address());
        return parallel_for(rows, std::max<int64_t>(1, detail::grain / n), [=](int64_t begin, int64_t end) {
          detail::fold_short_rows<F, detail::Itself, true>(data + begin, 1, from + begin * n, n, end - begin,
                                                           n);
        });
      }
      // Copies the first elements, then folds all: folding an element twice does not change a maximum.
      Tensor firsts = in;
      for (size_t i = 0; i < in.rank(); ++i)
        if (seen.strides[i] == 0 && in.shape().dims()[i] > 1)
          firsts = firsts.slice(static_cast<int64_t>(i), 0, 1);
      Layout of_firsts = seen;
      of_firsts.shape = firsts.shape();
      Tensor target(out.storage(), Layout(out.shape()), out.dtype());
      StridedLoop<2>(firsts.shape(), {&of_firsts.strides, &firsts.strides()})
          .run([&](int64_t n, const auto& at, const auto& by) {
            const T* from = static_cast<const T*>(firsts.address());
            for (int64_t i = 0; i < n; ++i) data[at[0] + i * by[0]] = from[at[1] + i * by[1]];
          });
      detail::split_kept_axis(in, seen, [&](const Tensor& part, const Layout& to) {
        detail::accumulate<F>(part, to, data + to.offset);
      });
    }
  });
}

}  // namespace espalier
