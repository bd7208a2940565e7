// Generating sequences by a model that keeps its earlier steps in KvCaches.
#pragma once
#include <cstdint>
#include <functional>
#include <source_location>

#include "espalier/nn/decoding.h"
#include "espalier/nn/transformer.h"

namespace espalier::nn {

/// The logits [sequences, vocabulary] of the next tokens from the last ones, [sequences, 1] of int64. The
/// caches get the step of these tokens.
using CachedModel = std::function<Variable(const Variable& tokens, KvCaches& caches)>;

/// The arguments of `generate` and `beam_search`.
struct Decoding {
  DecodingStep step;
  DecodingState state;
};
/// Goes on from `caches`, which have what a model has read before the first tokens, such as a prompt, or are
/// empty: the rows of the caches follow the sequences that are continued, so that a beam search drops and
/// repeats them. For one call of `generate` or `beam_search`, which changes its caches; the given ones stay
/// as they are. Tokens are on `device` at first. Throws Error for an empty model, ShapeError unless there is
/// a sequence and the caches are empty or have a row for each.
Decoding with_caches(CachedModel model, const KvCaches& caches, int64_t sequences, Device device = cpu(),
                     std::source_location where = std::source_location::current());

}  // namespace espalier::nn
