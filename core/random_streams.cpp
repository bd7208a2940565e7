#include "espalier/core/random_streams.h"

namespace espalier {

int64_t streams_of(const Op& op, const InputSpecs& inputs) {
  const auto* draws = dynamic_cast<const DrawsStreams*>(&op);
  return draws ? draws->streams(inputs) : 1;
}

RandomStream next_streams_of(const Op& op, const InputSpecs& inputs) {
  const int64_t count = streams_of(op, inputs);
  Generator& g = generator();
  const RandomStream first{g.seed, g.next_stream};
  g.next_stream += static_cast<uint64_t>(count);
  return first;
}

}  // namespace espalier
