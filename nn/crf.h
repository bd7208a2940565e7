// Crf: a conditional random field over a chain of tags.
#pragma once
#include <cstdint>

#include "espalier/nn/init.h"
#include "espalier/nn/layer.h"

namespace espalier::nn {

struct CrfOptions {
  Initializer initializer = init::Uniform(-0.1, 0.1);
  DType dtype = float32;  ///< of the parameters: a real one
};

/// A linear-chain conditional random field: the score of tags y₁ … y_T of a sequence is start[y₁] +
/// Σ transitions[yₜ₋₁, yₜ] + Σ emissions[t, yₜ] + end[y_T], and its probability is proportional to the
/// exponential of the score. Emissions are [batch, steps, tags], tags [batch, steps] of int32 or int64; a
/// bool `mask` [batch, steps] says which steps count, by default all: steps that do not are left out of their
/// sequence. A sequence without a step has score and log-likelihood 0. Parameters: `transitions`
/// [tags, tags], `start` and `end` [tags]. As a Layer it is `decode` of all steps. Lafferty, McCallum and
/// Pereira, Conditional random fields, 2001.
/// An open number of steps makes one scan of them. Calls throw ShapeError, also where a plan is run with 0
/// steps, TypeError, or IndexError for a tag that is none; the constructor Error unless tags > 0.
class Crf : public LayerOf<Crf> {
 public:
  explicit Crf(int64_t tags, CrfOptions options = {}, Where where = Where::current());

  using LayerOf::operator();
  /// Logarithms of the probabilities of the tags: [batch]. A loss is −mean of them. Tags of steps that do not
  /// count are any tags.
  Variable log_likelihood(const Variable& emissions, const Variable& tags, const Variable& mask = {},
                          Where where = Where::current()) const;
  /// The tags of the highest score: [batch, steps], int64, −1 where a step does not count. Viterbi, Error
  /// bounds for convolutional codes, 1967.
  Variable decode(const Variable& emissions, const Variable& mask = {}, Where where = Where::current()) const;
  /// The probability of each tag at each step: [batch, steps, tags], 0 where a step does not count.
  Variable marginals(const Variable& emissions, const Variable& mask = {},
                     Where where = Where::current()) const;
};

}  // namespace espalier::nn
