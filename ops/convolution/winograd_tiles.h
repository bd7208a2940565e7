// Tiles of images, and what Winograd's transforms make of them: a matrix for each of the 36
// elements of a tile.
#pragma once
#include <algorithm>
#include <cstdint>

#include "espalier/ops/convolution/convolution_method.h"
#include "espalier/ops/convolution/winograd_transform.h"
#include "espalier/ops/matmul/panel_product.h"

namespace espalier::winograd {

inline constexpr int64_t panel = panel_lanes<float>;  ///< columns of a right operand that lie together

/// Images in memory, and the steps along their axes.
struct Images {
  float* data;
  int64_t rows, columns, channels;
  int64_t image_step, channel_step, row_step, column_step;
};

/// How images of y are cut into tiles of 4×4. The tile of 6×6 of x begins `before` elements ahead.
struct TileGrid {
  TileGrid(int64_t images, int64_t rows, int64_t columns, int64_t before_rows, int64_t before_columns)
      : down((rows + output_side - 1) / output_side),
        across((columns + output_side - 1) / output_side),
        tiles(images * down * across),
        before_rows(before_rows),
        before_columns(before_columns) {}

  int64_t down, across, tiles, before_rows, before_columns;
};
struct TileRange {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

/// Steps that are odd numbers of cache lines use the sets of a cache alike.
inline int64_t odd_lines(int64_t elements) { return elements + (elements / panel % 2 == 0 ? panel : 0); }

/// A matrix [tiles, channels] for each element of a tile: that of element k, tile t and channel c is at
/// k · element_step + t · tile_step + c / panel · panel_step + c % panel. Channels are padded to whole
/// panels.
struct TileMatrices {
  float* data;
  int64_t element_step, tile_step, panel_step;

  /// Rows of all channels: a left operand.
  static TileMatrices in_rows(float* data, int64_t tiles, int64_t channels) {
    const int64_t row = odd_lines(in_lanes<float>(channels));
    return {data, odd_lines(tiles * row), row, panel};
  }
  /// Panels of all tiles: a right operand.
  static TileMatrices in_panels(float* data, int64_t tiles, int64_t channels) {
    const int64_t size = tiles * panel;
    return {data, odd_lines(in_lanes<float>(channels) / panel * size), panel, size};
  }
  int64_t elements() const { return tile_elements * element_step; }
};

/// Bᵀ d B of the tiles of x.
void transform_data(const Images& x, const TileGrid& grid, TileRange range, const TileMatrices& out);
/// G g Gᵀ of the tiles of a gradient of y.
void transform_gradient(const Images& y, const TileGrid& grid, TileRange range, const TileMatrices& out);
/// Aᵀ m A, to which `after` is done, in the tiles of y.
void transform_output(const TileMatrices& m, const Images& y, const TileGrid& grid, TileRange range,
                      const ConvolutionAfter& after, const float* bias, const float* residual);

}  // namespace espalier::winograd
