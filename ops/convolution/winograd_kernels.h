// Kernels, and what Winograd's transforms make of them: a matrix for each of the 36 elements of a tile.
#pragma once
#include "espalier/ops/convolution/winograd_tiles.h"

namespace espalier::winograd {

/// Kernels that take `in` channels to `out` channels.
struct Kernels {
  float* data;  ///< of element (0, 0)
  int64_t in, out;
  int64_t in_step, out_step, row_step, column_step;
};

/// Matrices [rows, columns] for each element of a tile, in panels of columns: [36][columns /
/// panel][rows][panel].
struct PanelMatrices {
  float* data;
  int64_t rows, panels, element_step;

  PanelMatrices(float* data, int64_t rows, int64_t columns)
      : data(data),
        rows(rows),
        panels(in_lanes<float>(columns) / panel),
        element_step(odd_lines(panels * rows * panel)) {}
  float* at(int64_t element, int64_t of_panel) const {
    return data + element * element_step + of_panel * rows * panel;
  }
  int64_t elements() const { return tile_elements * element_step; }
};

/// G g Gᵀ of kernels, as matrices [in, out], on several threads.
void transform_kernels(const Kernels& kernels, const PanelMatrices& out);
/// Aᵀ m A, the gradient of kernels, of matrices [in, out], on several threads.
void transform_kernel_gradient(const PanelMatrices& m, const Kernels& kernels);

}  // namespace espalier::winograd
