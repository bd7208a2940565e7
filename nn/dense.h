// Dense: every output is a weighted sum of all inputs.
#pragma once
#include <concepts>
#include <optional>
#include <utility>

#include "espalier/nn/init.h"
#include "espalier/nn/layer.h"

namespace espalier::nn {

struct DenseOptions {
  Initializer initializer = init::KaimingUniform();  ///< of the weight; the bias starts at 0
  bool bias = true;
  /// Of the parameters, a real one. Without, that of the first input; float32 if the input width is given.
  std::optional<DType> dtype = {};
};

/// y = x·Wᵀ + b: [..., in] becomes [..., out]. Parameters: `weight` [out, in] and `bias` [out].
/// An input of another width or of rank below 2 throws ShapeError; another dtype TypeError. Throws Error
/// unless the sizes are positive.
class Dense : public LayerOf<Dense> {
 public:
  /// The input width comes with the first call, or from a file, and then the parameters are made.
  explicit Dense(int64_t out, DenseOptions options = {}, Where where = Where::current());
  /// With the input width: the parameters are there at once, on the CPU.
  template <std::integral Out>
  Dense(int64_t in, Out out, DenseOptions options = {}, Where where = Where::current())
      : Dense(Sizes{in, static_cast<int64_t>(out)}, std::move(options), where) {}

 private:
  struct Sizes {
    int64_t in, out;
  };
  Dense(const Sizes& sizes, DenseOptions options, const Where& where);
};

}  // namespace espalier::nn
