// Embedding: a vector for each word.
#pragma once
#include <optional>

#include "espalier/nn/init.h"
#include "espalier/nn/layer.h"

namespace espalier::nn {

struct EmbeddingOptions {
  Initializer initializer = init::Normal();
  DType dtype = float32;  ///< of the weight: a real one
  /// The row of this index starts at 0 and has no gradient.
  std::optional<int64_t> padding_index = {};
  /// Rows of a larger Euclidean norm are scaled down to it where they are looked up; the parameter keeps
  /// their values, and gradients take the factor for a constant.
  std::optional<double> max_norm = {};
};

/// Rows of `weight` [count, width] at the indices of the input, int32 or int64 of any shape: [...] becomes
/// [..., width]. The parameter is there at once, and moves to where the first input is. Throws IndexError for
/// an index outside, a negative one too, TypeError for other inputs, and Error unless count and width are
/// positive, the padding index is a row, and the norm is above 0.
class Embedding : public LayerOf<Embedding> {
 public:
  Embedding(int64_t count, int64_t width, EmbeddingOptions options = {}, Where where = Where::current());
};

}  // namespace espalier::nn
