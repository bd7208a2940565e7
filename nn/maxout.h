// Maxout: the largest of several weighted sums.
#pragma once
#include "espalier/nn/dense.h"

namespace espalier::nn {

/// maxⱼ (x·Wⱼᵀ + bⱼ) over `pieces` maps: [..., in] becomes [..., out]. The part `maps` is a Dense with
/// out · pieces outputs, of which those of one maximum are neighbours. Goodfellow et al., Maxout networks,
/// 2013. Errors are those of Dense; throws Error unless out and pieces are positive.
class Maxout : public LayerOf<Maxout> {
 public:
  Maxout(int64_t out, int64_t pieces, DenseOptions options = {}, Where where = Where::current());
};

}  // namespace espalier::nn
