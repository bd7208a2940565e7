// The random numbers of transforms and of mixed samples.
#pragma once
#include <cstdint>

#include "espalier/core/random.h"

namespace espalier::data::transforms {

/// The random numbers of one sample, one after the other.
class Draws {
 public:
  explicit Draws(RandomStream stream = {}) : stream_(stream) {}
  /// Uniform in [low, high), or `low` where both are equal.
  double uniform(double low = 0, double high = 1);
  /// One of low, …, high.
  int64_t integer(int64_t low, int64_t high);
  /// Standard normal.
  double normal();
  bool chance(double probability) { return uniform() < probability; }

 private:
  RandomStream stream_;
};

}  // namespace espalier::data::transforms
