// Losses: the error of a prediction as one number. Each is a function of the same options, in
// ops/functions/losses.h, which has shapes, formulas and errors.
#pragma once
#include <source_location>
#include <utility>

#include "espalier/core/variable.h"
#include "espalier/ops/functions/losses.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

/// `function(prediction, target, options)`.
template <class Options, Variable (*function)(const Operand&, const Operand&, const Options&)>
class LossOf {
 public:
  using Where = std::source_location;
  LossOf() = default;
  explicit LossOf(Options options) : options_(std::move(options)) {}
  Variable operator()(const Variable& prediction, const Variable& target,
                      Where where = Where::current()) const {
    return function({prediction, where}, {target, where}, options_);
  }

 protected:
  Options options_;
};

/// `function(first, second, target, options)`.
template <class Options, Variable (*function)(const Operand&, const Operand&, const Operand&, const Options&)>
class LossOfThree {
 public:
  using Where = std::source_location;
  LossOfThree() = default;
  explicit LossOfThree(Options options) : options_(std::move(options)) {}
  Variable operator()(const Variable& first, const Variable& second, const Variable& target,
                      Where where = Where::current()) const {
    return function({first, where}, {second, where}, {target, where}, options_);
  }

 protected:
  Options options_;
};

/// The mean of squares over all elements of `prediction - target`, which must have one shape (ShapeError).
struct MeanSquared : LossOf<LossOptions, mean_squared_error> {
  using LossOf::LossOf;
};
struct MeanAbsolute : LossOf<LossOptions, mean_absolute_error> {
  using LossOf::LossOf;
};
struct SmoothL1 : LossOf<SmoothL1Options, smooth_l1_loss> {
  using LossOf::LossOf;
};
struct Huber : LossOf<HuberOptions, huber_loss> {
  using LossOf::LossOf;
};

/// −log softmax(prediction)[target], as `softmax_cross_entropy` with the same options: prediction
/// [..., classes] before any softmax; target [...] or [..., 1] of integers, or [..., classes] of
/// probabilities. Throws ShapeError, TypeError, or IndexError for a label that is no class.
struct SoftmaxCrossEntropy : LossOf<CrossEntropyOptions, softmax_cross_entropy> {
  using LossOf::LossOf;
};
/// The same of probabilities; PyTorch's CrossEntropyLoss is SoftmaxCrossEntropy.
struct CrossEntropy : LossOf<CrossEntropyOptions, categorical_cross_entropy> {
  using LossOf::LossOf;
};
/// The same of logarithms of probabilities, as LogSoftmax gives them.
struct NegativeLogLikelihood : LossOf<CrossEntropyOptions, nll_loss> {
  using LossOf::LossOf;
};
/// Of probabilities of one class each.
struct BinaryCrossEntropy : LossOf<LossOptions, binary_cross_entropy> {
  using LossOf::LossOf;
};
/// The same before the sigmoid.
struct SigmoidCrossEntropy : LossOf<SigmoidCrossEntropyOptions, binary_cross_entropy_with_logits> {
  using LossOf::LossOf;
};

struct KlDivergence : LossOf<KlDivergenceOptions, kl_div> {
  using LossOf::LossOf;
};
struct Poisson : LossOf<PoissonOptions, poisson_nll_loss> {
  using LossOf::LossOf;
};
/// (mean, target, variance).
struct Gaussian : LossOfThree<GaussianOptions, gaussian_nll_loss> {
  using LossOfThree::LossOfThree;
};

// Targets are −1 and 1.
struct SoftMargin : LossOf<LossOptions, soft_margin_loss> {
  using LossOf::LossOf;
};
struct Hinge : LossOf<HingeOptions, hinge_loss> {
  using LossOf::LossOf;
};
struct HingeEmbedding : LossOf<MarginOptions, hinge_embedding_loss> {
  using LossOf::LossOf;
};
/// (a, b, target).
struct CosineEmbedding : LossOfThree<RankingOptions, cosine_embedding_loss> {
  using LossOfThree::LossOfThree;
};
/// (a, b, target).
struct MarginRanking : LossOfThree<RankingOptions, margin_ranking_loss> {
  using LossOfThree::LossOfThree;
};
/// (a, b): a should be above b.
struct PairwiseRank : LossOf<MarginOptions, pairwise_rank_loss> {
  using LossOf::LossOf;
};
/// (anchor, positive, negative).
struct TripletMargin : LossOfThree<TripletMarginOptions, triplet_margin_loss> {
  using LossOfThree::LossOfThree;
};
struct MultiMargin : LossOf<MultiMarginOptions, multi_margin_loss> {
  using LossOf::LossOf;
};
struct MultiLabelMargin : LossOf<MultiLabelMarginOptions, multilabel_margin_loss> {
  using LossOf::LossOf;
};
struct MultiLabelSoftMargin : LossOf<MultiLabelSoftMarginOptions, multilabel_soft_margin_loss> {
  using LossOf::LossOf;
};

/// The sum of all elements, or what another reduction makes of them, for programs without a target.
class ConstantLoss {
 public:
  using Where = std::source_location;
  explicit ConstantLoss(LossReduction reduction = LossReduction::sum) : reduction_(reduction) {}
  Variable operator()(const Variable& x, Where where = Where::current()) const;

 private:
  LossReduction reduction_;
};

}  // namespace espalier::nn
