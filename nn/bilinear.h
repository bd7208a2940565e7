// Bilinear: products of two inputs, weighted.
#pragma once
#include "espalier/nn/init.h"
#include "espalier/nn/layer.h"

namespace espalier::nn {

struct BilinearOptions {
  Initializer initializer = init::KaimingUniform();  ///< of the weight; the bias starts at 0
  bool bias = true;
  DType dtype = float32;  ///< of the parameters, if the widths are given: a real one
};

/// y[k] = aᵀ·W[k]·b + bias[k]: [..., first] and [..., second] become [..., out]. Parameters: `weight`
/// [out, first, second] and `bias` [out]. Throws ShapeError for inputs of rank below 2, of other widths, or
/// of different leading axes; TypeError for another dtype; Error unless sizes are positive.
class Bilinear : public LayerOf<Bilinear> {
 public:
  /// The widths come with the first call, or from a file.
  explicit Bilinear(int64_t out, BilinearOptions options = {}, Where where = Where::current());
  /// With the widths: the parameters are there at once, on the CPU.
  Bilinear(int64_t first, int64_t second, int64_t out, BilinearOptions options = {},
           Where where = Where::current());

  Variable operator()(const Variable& a, const Variable& b, Where where = Where::current()) const;
};

}  // namespace espalier::nn
