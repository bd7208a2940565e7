// Similarities and distances of two inputs, as objects that keep their settings.
#pragma once
#include <source_location>

#include "espalier/core/variable.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

/// a·b / (‖a‖ · ‖b‖) along an axis: `cosine_similarity`.
class CosineSimilarity {
 public:
  using Where = std::source_location;
  explicit CosineSimilarity(int64_t axis = 1, double epsilon = 1e-8) : axis_(axis), epsilon_(epsilon) {}
  Variable operator()(const Variable& a, const Variable& b, Where where = Where::current()) const {
    return cosine_similarity({a, where}, {b, where}, axis_, epsilon_);
  }

 private:
  int64_t axis_;
  double epsilon_;
};

/// ‖a − b + ε‖ along the last axis: `pairwise_distance`.
class PairwiseDistance {
 public:
  using Where = std::source_location;
  explicit PairwiseDistance(DistanceOptions options = {}) : options_(options) {}
  Variable operator()(const Variable& a, const Variable& b, Where where = Where::current()) const {
    return pairwise_distance({a, where}, {b, where}, options_);
  }

 private:
  DistanceOptions options_;
};

}  // namespace espalier::nn
