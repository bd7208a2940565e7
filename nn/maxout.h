// Maxout: the largest of several weighted sums.
#pragma once
#include <concepts>
#include <optional>
#include <utility>

#include "espalier/nn/dense.h"

namespace espalier::nn {

/// maxⱼ (x·Wⱼᵀ + bⱼ) over `pieces` maps: [..., in] becomes [..., out]. The part `maps` is a Dense with
/// out · pieces outputs, of which those of one maximum are neighbours. Goodfellow et al., Maxout networks,
/// 2013. Errors are those of Dense; throws Error unless out and pieces are positive.
class Maxout : public LayerOf<Maxout> {
 public:
  Maxout(int64_t out, int64_t pieces, DenseOptions options = {}, Where where = Where::current());
  /// With the input width: the parameters are there at once, on the CPU.
  template <std::integral Pieces>
  Maxout(int64_t in, int64_t out, Pieces pieces, DenseOptions options = {}, Where where = Where::current())
      : Maxout(Sizes{in, out, static_cast<int64_t>(pieces)}, std::move(options), where) {}

 private:
  struct Sizes {
    std::optional<int64_t> in;
    int64_t out, pieces;
  };
  Maxout(const Sizes& sizes, DenseOptions options, const Where& where);
};

}  // namespace espalier::nn
