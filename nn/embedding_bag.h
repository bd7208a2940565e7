// EmbeddingBag: one vector for several words.
#pragma once
#include <cstdint>
#include <optional>

#include "espalier/nn/init.h"
#include "espalier/nn/layer.h"

namespace espalier::nn {

enum class BagMode : uint8_t { sum, mean, max };

struct EmbeddingBagOptions {
  BagMode mode = BagMode::mean;
  Initializer initializer = init::Normal();
  DType dtype = float32;  ///< of the weight: a real one
  /// Words of this index do not count, so that bags may have different sizes; a bag without others is 0. Its
  /// row starts at 0 and has no gradient.
  std::optional<int64_t> padding_index = {};
  std::optional<double> max_norm = {};  ///< as for Embedding
};

/// The sum, mean or maximum of the rows of `weight` [count, width] at the indices of each bag: [..., bag] of
/// int32 or int64 becomes [..., width]. A bag without
/// words is 0. Errors are those of Embedding; throws ShapeError for a scalar.
class EmbeddingBag : public LayerOf<EmbeddingBag> {
 public:
  EmbeddingBag(int64_t count, int64_t width, EmbeddingBagOptions options = {},
               Where where = Where::current());

  using LayerOf::operator();
  /// Sums in which each row counts by its weight, in the shape of the indices. Throws ShapeError, TypeError,
  /// or Error unless the mode is sum.
  Variable operator()(const Variable& indices, const Variable& weights, Where where = Where::current()) const;
};

}  // namespace espalier::nn
