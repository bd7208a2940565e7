// Streams of random nodes, of which some take several.
#pragma once
#include "espalier/core/op.h"

namespace espalier {

/// A random op that takes several streams, one behind the other, is this, too.
class DrawsStreams {
 public:
  /// How many, up to `most`.
  virtual int64_t streams(const InputSpecs& inputs) const = 0;
  static constexpr int64_t most = int64_t{1} << 40;

 protected:
  ~DrawsStreams() = default;
};

/// How many streams a node of that random op takes.
int64_t streams_of(const Op& op, const InputSpecs& inputs);
/// The streams of a node that is evaluated now, from the calling thread's generator.
RandomStream next_streams_of(const Op& op, const InputSpecs& inputs);

}  // namespace espalier
