// Losses of predictions and targets, by element or by row. `softmax_cross_entropy` is in loss.h.
//
// The losses of elements or rows are averaged, added up, or returned as they are (LossReduction). 16-bit
// operands are computed in float32. Operands of a loss have one real dtype (TypeError) and one shape
// (ShapeError), unless a number is given, or a comment says otherwise. Settings that make no sense throw
// Error.
#pragma once
#include "espalier/ops/functions/loss.h"

namespace espalier {

struct LossOptions {
  /// By how much each loss counts: any shape that is broadcast to that of the losses. The mean divides by the
  /// number of losses, as PyTorch's does.
  Variable weights = {};
  LossReduction reduction = LossReduction::mean;
};

/// (prediction − target)².
Variable mean_squared_error(const Operand& prediction, const Operand& target, const LossOptions& options);
/// |prediction − target|.
Variable mean_absolute_error(const Operand& prediction, const Operand& target,
                             const LossOptions& options = {});

struct SmoothL1Options {
  double beta = 1;  ///< above 0
  Variable weights = {};
  LossReduction reduction = LossReduction::mean;
};
/// d²/(2β) where d = |prediction − target| < β, and d − β/2 elsewhere. Girshick, Fast R-CNN, 2015.
Variable smooth_l1_loss(const Operand& prediction, const Operand& target,
                        const SmoothL1Options& options = {});

struct HuberOptions {
  double delta = 1;  ///< above 0
  Variable weights = {};
  LossReduction reduction = LossReduction::mean;
};
/// d²/2 where d = |prediction − target| < δ, and δ(d − δ/2) elsewhere. Huber, Robust estimation of a location
/// parameter, 1964.
Variable huber_loss(const Operand& prediction, const Operand& target, const HuberOptions& options = {});

/// −log p[label] along the last axis, where `log_probabilities` [..., classes] are log p: labels and options
/// are those of `softmax_cross_entropy`, errors too.
Variable nll_loss(const Operand& log_probabilities, const Operand& labels,
                  const CrossEntropyOptions& options = {});
/// The same from probabilities p; logarithms are at least −100, and have no gradient where p is below 10⁻³⁸.
Variable categorical_cross_entropy(const Operand& probabilities, const Operand& labels,
                                   const CrossEntropyOptions& options = {});

/// −y log p − (1 − y) log(1 − p) for probabilities p and targets y from 0 to 1; logarithms are at least −100.
Variable binary_cross_entropy(const Operand& probabilities, const Operand& target,
                              const LossOptions& options = {});
struct SigmoidCrossEntropyOptions {
  /// By how much positive targets count, such as [classes]: any shape that is broadcast to that of the
  /// targets.
  Variable positive_weights = {};
  Variable weights = {};
  LossReduction reduction = LossReduction::mean;
};
/// The same for p = sigmoid(logits), without overflow.
Variable binary_cross_entropy_with_logits(const Operand& logits, const Operand& target,
                                          const SigmoidCrossEntropyOptions& options = {});

struct KlDivergenceOptions {
  bool log_target = false;  ///< the targets are log q
  /// Divide the sum by the size of the first axis, as the definition does, and not by the number of elements.
  /// With LossReduction::mean.
  bool batch_mean = false;
  Variable weights = {};
  LossReduction reduction = LossReduction::mean;
};
/// q (log q − log p), 0 where q is 0, from log p and targets q. Kullback and Leibler, On information and
/// sufficiency, 1951.
Variable kl_div(const Operand& log_probabilities, const Operand& target,
                const KlDivergenceOptions& options = {});

struct PoissonOptions {
  bool log_input = true;  ///< the prediction is the logarithm of the rate
  bool full = false;      ///< with Stirling's approximation of log(target!), for targets above 1
  double epsilon = 1e-8;  ///< added to the rate before its logarithm is taken
  Variable weights = {};
  LossReduction reduction = LossReduction::mean;
};
/// e^x − target · x, or x − target · log(x + ε): −log of a Poisson distribution of rate eˣ or x at the
/// target.
Variable poisson_nll_loss(const Operand& prediction, const Operand& target,
                          const PoissonOptions& options = {});

struct GaussianOptions {
  bool full = false;      ///< with log(2π) / 2
  double epsilon = 1e-6;  ///< smaller variances count as this; above 0
  Variable weights = {};
  LossReduction reduction = LossReduction::mean;
};
/// (log v + (mean − target)² / v) / 2: −log of a normal distribution. `variance` is broadcast to the shape of
/// the others. Nix and Weigend, Estimating the mean and variance of the target probability distribution,
/// 1994.
Variable gaussian_nll_loss(const Operand& mean, const Operand& target, const Operand& variance,
                           const GaussianOptions& options = {});

// Targets are −1 or 1 in the losses below, of the dtype of the prediction.

/// log(1 + exp(−target · x)).
Variable soft_margin_loss(const Operand& prediction, const Operand& target, const LossOptions& options = {});
struct HingeOptions {
  double margin = 1;
  int power = 1;  ///< 1 or 2
  Variable weights = {};
  LossReduction reduction = LossReduction::mean;
};
/// max(0, margin − target · x)^power. Cortes and Vapnik, Support-vector networks, 1995.
Variable hinge_loss(const Operand& prediction, const Operand& target, const HingeOptions& options = {});
struct MarginOptions {
  double margin = 1;
  Variable weights = {};
  LossReduction reduction = LossReduction::mean;
};
/// x where the target is 1, max(0, margin − x) where it is −1: x is a distance.
Variable hinge_embedding_loss(const Operand& distance, const Operand& target,
                              const MarginOptions& options = {});
struct RankingOptions {
  double margin = 0;
  Variable weights = {};
  LossReduction reduction = LossReduction::mean;
};
/// max(0, margin − target · (a − b)): a should be above b where the target is 1.
Variable margin_ranking_loss(const Operand& a, const Operand& b, const Operand& target,
                             const RankingOptions& options = {});
/// max(0, margin − a + b): a should be above b.
Variable pairwise_rank_loss(const Operand& a, const Operand& b, const MarginOptions& options = {});
/// 1 − cos(a, b) where the target is 1, max(0, cos(a, b) − margin) where it is −1: a and b [..., width],
/// targets [...].
Variable cosine_embedding_loss(const Operand& a, const Operand& b, const Operand& target,
                               const RankingOptions& options = {});

struct TripletMarginOptions {
  double margin = 1;
  double p = 2;           ///< of the norm; at least 1
  double epsilon = 1e-6;  ///< added to differences
  /// Take the smaller of the distances of the negative from the anchor and from the positive. Balntas et al.,
  /// Learning shallow convolutional feature descriptors with triplet losses, 2016.
  bool swap = false;
  Variable weights = {};
  LossReduction reduction = LossReduction::mean;
};
/// max(0, ‖anchor − positive‖ − ‖anchor − negative‖ + margin) for vectors along the last axis, of which there
/// is one loss each.
Variable triplet_margin_loss(const Operand& anchor, const Operand& positive, const Operand& negative,
                             const TripletMarginOptions& options = {});

struct MultiMarginOptions {
  double margin = 1;
  int power = 1;                ///< 1 or 2
  Variable class_weights = {};  ///< [classes]: by how much a label of that class counts
  Variable weights = {};
  LossReduction reduction = LossReduction::mean;
};
/// Σⱼ max(0, margin − x[label] + x[j])^power / classes over the other classes j: scores [..., classes] and
/// labels [...] of integers. Throws IndexError for a label that is no class.
Variable multi_margin_loss(const Operand& scores, const Operand& labels,
                           const MultiMarginOptions& options = {});
/// p·x − ‖p‖²/2 − (q·x − ‖q‖²/2) where p is `sparsemax` of scores x [..., classes], and q the distribution of
/// the labels: integers [...], or q itself [..., classes]. Its gradient is p − q: it is 0 where the score of
/// the label leads by 1. Throws IndexError for a label that is no class. Martins and Astudillo, From softmax
/// to sparsemax, 2016.
Variable sparsemax_loss(const Operand& scores, const Operand& labels, const LossOptions& options = {});
struct MultiLabelMarginOptions {
  Variable weights = {};
  LossReduction reduction = LossReduction::mean;
};
/// Σ max(0, 1 − (x[i] − x[j])) / classes over the labels i of a row and the classes j that are none of them.
/// Both are [..., classes]; the labels of a row, integers, come first, and end at the first negative one.
/// Throws IndexError for a label that is no class.
Variable multilabel_margin_loss(const Operand& scores, const Operand& labels,
                                const MultiLabelMarginOptions& options = {});
struct MultiLabelSoftMarginOptions {
  Variable class_weights = {};  ///< [classes]
  Variable weights = {};        ///< of rows
  LossReduction reduction = LossReduction::mean;
};
/// The mean of binary_cross_entropy_with_logits over the classes, the last axis.
Variable multilabel_soft_margin_loss(const Operand& logits, const Operand& target,
                                     const MultiLabelSoftMarginOptions& options = {});

}  // namespace espalier
