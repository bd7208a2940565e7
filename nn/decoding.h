// Generating sequences of tokens by a model that is called token by token: greedily, by sampling, or by beam
// search. Works eagerly, and builds no gradients.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <source_location>
#include <vector>

#include "espalier/core/variable.h"
#include "espalier/ops/functions/token_sampling.h"

namespace espalier::nn {

/// What a model carries from token to token: any number of Variables, with a row for each sequence, such as
/// the states of cells or caches of keys and values.
using DecodingState = std::vector<Variable>;

struct NextTokens {
  Variable logits;      ///< [sequences, vocabulary], of a real type
  DecodingState state;  ///< as many Variables as the step got, or any number if it got none
};
/// The model: the logits of the next token of each sequence from its last token, [sequences] of int64, and
/// its state. The number of sequences changes between calls.
using DecodingStep = std::function<NextTokens(const Variable& tokens, const DecodingState& state)>;

struct GenerateOptions {
  int64_t most_tokens = 100;              ///< of a sequence, without the first one
  std::optional<int64_t> end_token = {};  ///< ends a sequence; it is not part of the result
  /// How tokens are drawn; empty: the most probable one.
  std::optional<TokenSampling> sampling = {};
};
/// A continuation of each of the `first` tokens, without them. `state` has a row for each sequence; ended
/// ones have no row in later calls. Draws depend on esp::seed. Throws Error unless most_tokens ≥ 0 and what
/// TokenSampling asks, ShapeError or TypeError if the step returns other shapes or types, NumericError for
/// logits on the host that contain NaN or +∞, or −∞ for all tokens of a sequence.
std::vector<std::vector<int64_t>> generate(const DecodingStep& step, const std::vector<int64_t>& first,
                                           DecodingState state, const GenerateOptions& options = {},
                                           std::source_location where = std::source_location::current());

struct BeamOptions {
  int64_t beams = 4;                      ///< sequences that are continued, for each first token
  int64_t best = 1;                       ///< sequences that are returned, at most `beams`
  int64_t most_tokens = 100;              ///< of a sequence, without the first one
  std::optional<int64_t> end_token = {};  ///< ends a sequence; it is not part of the result
  /// α: the score of a sequence is the logarithm of its probability / ((5 + tokens) / 6)^α, where the end
  /// counts as a token. 0: short sequences win. At least 0. Wu et al., Google's neural machine translation
  /// system, 2016.
  double length_penalty = 0;
};
struct Hypothesis {
  std::vector<int64_t> tokens;  ///< without the first and the end
  double log_probability = 0;   ///< of the tokens, and of the end if it is there
  double score = 0;
  bool ended = false;  ///< else it has `most_tokens`
};
/// The sequences of the highest scores that are found for each first token, the best first. A search ends
/// when no sequence that is continued can come among the best; with as many beams as there are sequences it
/// finds the best of all. Throws Error unless beams ≥ best ≥ 1, most_tokens ≥ 0 and length_penalty ≥ 0,
/// ShapeError or TypeError if the step returns other shapes or types, NumericError as `generate`.
std::vector<std::vector<Hypothesis>> beam_search(
    const DecodingStep& step, const std::vector<int64_t>& first, DecodingState state,
    const BeamOptions& options = {}, std::source_location where = std::source_location::current());

}  // namespace espalier::nn
