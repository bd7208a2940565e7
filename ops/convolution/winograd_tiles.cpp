#include "espalier/ops/convolution/winograd_tiles.h"

#include <cstring>

#include "espalier/core/cpu/lanes.h"
#include "espalier/core/scalar.h"

namespace espalier::winograd {

namespace {

constexpr float zeros[panel] = {};

template <int bytes>
using Floats = typename VectorOf<float, bytes>::Vector;

/// `n` elements, which are `from_step` and `to_step` apart.
[[gnu::always_inline]] inline void copy(const float* from, int64_t from_step, float* to, int64_t to_step,
                                        int64_t n) {
  int64_t i = 0;
  if (from_step == 1 && to_step == 1 && n >= output_side) {
    std::memcpy(to, from, output_side * sizeof(float));
    i = output_side;
  }
  for (; i < n; ++i) to[i * to_step] = from[i * from_step];
}

/// Where the elements of a tile are, for channels that lie together. What is outside of the image is 0,
/// whatever its channel: `mask` is 0 there and -1 elsewhere.
template <int side>
struct Patch {
  static constexpr int size = side * side;
  const float* at[size];
  int64_t mask[size];

  [[gnu::always_inline]] Patch(const Images& x, int64_t image, int64_t row, int64_t column) {
    const float* const data = x.data + image * x.image_step;
    for (int64_t i = 0; i < side; ++i)
      for (int64_t j = 0; j < side; ++j) {
        const int64_t r = row + i, c = column + j, k = i * side + j;
        const bool inside = r >= 0 && r < x.rows && c >= 0 && c < x.columns;
        at[k] = inside ? data + r * x.row_step + c * x.column_step : zeros;
        mask[k] = -int64_t{inside};
      }
  }
  template <class V>
  [[gnu::always_inline]] void read_channels(int64_t first, int k, V& to) const {
    read_lanes(at[k] + (first & mask[k]), to);
  }
};

/// The elements of a tile for `count` channels that may lie apart, copied row by row and transposed.
template <int side, int count>
class GatheredTile {
 public:
  [[gnu::always_inline]] GatheredTile(const Images& x, int64_t image, int64_t row, int64_t column)
      : x_(x),
        first_row_(std::max<int64_t>(0, -row)),
        last_row_(std::min<int64_t>(side, x.rows - row)),
        first_column_(std::clamp<int64_t>(-column, 0, side)),
        columns_(std::min<int64_t>(side, x.columns - column) - first_column_),
        data_(x.data + image * x.image_step + row * x.row_step + (column + first_column_) * x.column_step) {
    std::memset(rows_, 0, sizeof(rows_));
  }
  /// Channels from `first` on, of which `n` are there; the others are 0.
  template <class V>
  [[gnu::always_inline]] void read_channels(int64_t first, int64_t n, V (&to)[side * side]) {
    if (n < count) std::memset(rows_, 0, sizeof(rows_));
    for (int64_t l = 0; l < std::min<int64_t>(n, count); ++l)
      for (int64_t r = first_row_; r < last_row_; ++r)
        copy(data_ + (first + l) * x_.channel_step + r * x_.row_step, x_.column_step,
             &rows_[l][r][first_column_], 1, columns_);
#pragma GCC unroll 6
    for (int r = 0; r < side; ++r)
#pragma GCC unroll 2
      for (int c = 0; c < side; c += count) {
        V block[count];
#pragma GCC unroll 16
        for (int l = 0; l < count; ++l) read_lanes(&rows_[l][r][c], block[l]);
        transpose_lanes(block);
#pragma GCC unroll 16
        for (int j = 0; j < count; ++j)
          if (c + j < side) to[r * side + c + j] = block[j];
      }
  }

 private:
  static constexpr int width = std::max(count, 8);
  const Images& x_;
  int64_t first_row_, last_row_, first_column_, columns_;
  const float* data_;
  float rows_[count][side][width];
};

/// Where a tile begins in y.
struct Place {
  int64_t image, row, column;

  Place(const TileGrid& grid, int64_t tile)
      : image(tile / (grid.down * grid.across)),
        row(tile / grid.across % grid.down * output_side),
        column(tile % grid.across * output_side) {}
};

/// F of tiles of images, which begin `rows` and `columns` ahead of those of y.
template <class F>
struct ForwardTransform {
  Images x;
  TileGrid grid;
  TileRange range;
  TileMatrices out;
  int64_t rows, columns;

  template <int bytes>
  [[gnu::always_inline]] void run() const {
    using V = Floats<bytes>;
    constexpr int count = VectorOf<float, bytes>::count;
    const int64_t together = x.channel_step == 1 ? x.channels / count * count : 0,
                  padded = in_lanes<float>(x.channels);
    for (int64_t t = range.begin; t < range.end; ++t) {
      const Place place(grid, t);
      const int64_t row = place.row - rows, column = place.column - columns;
      float* const tile = out.data + (t - range.begin) * out.tile_step;
      const auto transform = [&](int64_t c, const auto& load) __attribute__((always_inline)) {
        float* const to = tile + c / panel * out.panel_step + c % panel;
        transform_square<F, V>(
            load, [&](int k, const V& v)
                      __attribute__((always_inline)) { write_lanes(v, to + k * out.element_step); });
      };
      if (together > 0) {
        const Patch<F::in> patch(x, place.image, row, column);
        for (int64_t c = 0; c < together; c += count)
          transform(
              c, [&](int k, V& v) __attribute__((always_inline)) { patch.read_channels(c, k, v); });
      }
      if (together < padded) {
        GatheredTile<F::in, count> gathered(x, place.image, row, column);
        for (int64_t c = together; c < padded; c += count) {
          V elements[F::in * F::in];
          gathered.read_channels(c, x.channels - c, elements);
          transform(
              c, [&](int k, V& v) __attribute__((always_inline)) { v = elements[k]; });
        }
      }
    }
  }
};

struct InverseTransform {
  TileMatrices m;
  Images y;
  TileGrid grid;
  TileRange range;
  ConvolutionAfter after;
  const float *bias, *residual;

  template <int bytes>
  [[gnu::always_inline]] void run() const {
    using V = Floats<bytes>;
    constexpr int count = VectorOf<float, bytes>::count;
    for (int64_t t = range.begin; t < range.end; ++t) {
      const Place place(grid, t);
      const int64_t down = std::min<int64_t>(output_side, y.rows - place.row),
                    across = std::min<int64_t>(output_side, y.columns - place.column),
                    start =
                        place.image * y.image_step + place.row * y.row_step + place.column * y.column_step;
      const float* const tile = m.data + (t - range.begin) * m.tile_step;
      for (int64_t c = 0; c < y.channels; c += count) {
        const float* const from = tile + c / panel * m.panel_step + c % panel;
        float result[output_side * output_side][count];
        transform_square<OutputTransform, V>(
            [&](int k, V& v) __attribute__((always_inline)) { read_lanes(from + k * m.element_step, v); },
            [&](int k, const V& v) __attribute__((always_inline)) { write_lanes(v, result[k]); });
        const int64_t n = std::min<int64_t>(count, y.channels - c);
        if (bias) {
          for (auto& row : result)
            for (int64_t l = 0; l < n; ++l) row[l] += bias[c + l];
        }
        if (residual) {
          for (int64_t i = 0; i < down; ++i)
            for (int64_t j = 0; j < across; ++j) {
              const float* add = residual + start + i * y.row_step + j * y.column_step + c * y.channel_step;
              for (int64_t l = 0; l < n; ++l) result[i * output_side + j][l] += add[l * y.channel_step];
            }
        }
        activate(&result[0][0], output_side * output_side * count);
        float* const to = y.data + start + c * y.channel_step;
        if (y.channel_step == 1 && n == count) {
          for (int64_t i = 0; i < down; ++i)
            for (int64_t j = 0; j < across; ++j) {
              V v;
              read_lanes(result[i * output_side + j], v);
              write_lanes(v, to + i * y.row_step + j * y.column_step);
            }
        } else {
          scatter<V>(result, to, n, down, across);
        }
      }
    }
  }

 private:
  /// Transposes the elements of a tile and copies them row by row.
  template <class V, int count>
  [[gnu::always_inline]] void scatter(const float (&result)[output_side * output_side][count], float* to,
                                      int64_t channels, int64_t down, int64_t across) const {
    float rows[count][output_side * output_side];
#pragma GCC unroll 4
    for (int k = 0; k < output_side * output_side; k += count) {
      V block[count];
#pragma GCC unroll 16
      for (int l = 0; l < count; ++l) read_lanes(result[k + l], block[l]);
      transpose_lanes(block);
#pragma GCC unroll 16
      for (int l = 0; l < count; ++l) write_lanes(block[l], rows[l] + k);
    }
    for (int64_t l = 0; l < channels; ++l)
      for (int64_t i = 0; i < down; ++i)
        copy(rows[l] + i * output_side, 1, to + l * y.channel_step + i * y.row_step, y.column_step, across);
  }
  [[gnu::always_inline]] void activate(float* x, int64_t n) const {
    using Activation = ConvolutionAfter::Activation;
    const auto each = [&](const auto& f) __attribute__((always_inline)) {
      for (int64_t i = 0; i < n; ++i) x[i] = f(x[i]);
    };
    switch (after.activation) {
      case Activation::none: break;
      case Activation::relu: each(scalar::Relu()); break;
      case Activation::tanh: each(scalar::Tanh()); break;
      case Activation::sigmoid: each(scalar::Sigmoid()); break;
      case Activation::clip:
        each([ low = after.low, high = after.high ](float v) __attribute__((always_inline)) {
          const float above = v < low ? low : v;
          return above > high ? high : above;
        });
        break;
    }
  }
};

}  // namespace

void transform_data(const Images& x, const TileGrid& grid, TileRange range, const TileMatrices& out) {
  run_in_lanes(ForwardTransform<DataTransform>{x, grid, range, out, grid.before_rows, grid.before_columns});
}
void transform_gradient(const Images& y, const TileGrid& grid, TileRange range, const TileMatrices& out) {
  run_in_lanes(ForwardTransform<GradientTransform>{y, grid, range, out, 0, 0});
}
void transform_output(const TileMatrices& m, const Images& y, const TileGrid& grid, TileRange range,
                      const ConvolutionAfter& after, const float* bias, const float* residual) {
  run_in_lanes(InverseTransform{m, y, grid, range, after, bias, residual});
}

}  // namespace espalier::winograd
