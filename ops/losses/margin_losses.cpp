// Losses that ask for a margin between scores or distances.
#include <fmt/format.h>

#include <algorithm>

#include "espalier/ops/functions/distance.h"
#include "espalier/ops/functions/losses.h"
#include "espalier/ops/functions/simplex.h"
#include "espalier/ops/functions/smooth_activation.h"
#include "espalier/ops/losses/cross_entropy.h"
#include "espalier/ops/losses/loss_terms.h"
#include "espalier/ops/ops.h"

namespace espalier {

using detail::check_power;
using detail::loss_of;
using detail::paired;
using detail::weighted;

namespace {

Variable raised(const Variable& x, int power) { return power == 2 ? square(x) : x; }

/// The scores, with 0 for a class at −∞ that has no share in a sum.
Variable counted(const Variable& scores, const Variable& shares) {
  return where(logical_and(isinf(scores), equal(shares, 0.0)), 0.0, scores);
}

/// a·b / √((‖a‖² + ε)(‖b‖² + ε)), as PyTorch's loss has it.
Variable cosine_of_rows(const Variable& a, const Variable& b) {
  constexpr double epsilon = 1e-12;
  return sum(a * b, -1) / sqrt((sum(square(a), -1) + epsilon) * (sum(square(b), -1) + epsilon));
}

/// The rows of `scores` and their labels; throws unless these are integers in the shape of `expected`.
void check_labels(std::string_view loss, const Variable& scores, const Variable& labels, bool of_rows) {
  detail::check_real(loss, scores);
  const bool integers = labels.dtype() == int32 || labels.dtype() == int64;
  if (!integers)
    throw TypeError(fmt::format("{}: labels must be int32 or int64, not {}", loss, name(labels.dtype())));
  const Shape &x = scores.shape(), &y = labels.shape();
  if (x.rank() == 0 || y.rank() + (of_rows ? 1 : 0) != x.rank() || !std::equal(y.begin(), y.end(), x.begin()))
    throw ShapeError(
        fmt::format("{}: labels of shape {} do not go with scores of shape {}", loss, y.str(), x.str()));
}

}  // namespace

Variable soft_margin_loss(const Operand& prediction, const Operand& target, const LossOptions& options) {
  return loss_of("soft_margin_loss", prediction, target, [&](const Variable& x, const Variable& t) {
    return weighted("soft_margin_loss", -log_sigmoid(t * x), options.weights, options.reduction);
  });
}

Variable hinge_loss(const Operand& prediction, const Operand& target, const HingeOptions& options) {
  return loss_of("hinge_loss", prediction, target, [&](const Variable& x, const Variable& t) {
    check_power("hinge_loss", options.power);
    return weighted("hinge_loss", raised(relu(options.margin - t * x), options.power), options.weights,
                    options.reduction);
  });
}

Variable hinge_embedding_loss(const Operand& distance, const Operand& target, const MarginOptions& options) {
  return loss_of("hinge_embedding_loss", distance, target, [&](const Variable& x, const Variable& t) {
    return weighted("hinge_embedding_loss", where(greater(t, 0.0), x, relu(options.margin - x)),
                    options.weights, options.reduction);
  });
}

Variable margin_ranking_loss(const Operand& a, const Operand& b, const Operand& target,
                             const RankingOptions& options) {
  constexpr std::string_view name = "margin_ranking_loss";
  return loss_of(name, a, b, [&](const Variable& x, const Variable& y) {
    const Variable t =
        widened(target.is_number() ? target.like(x) : paired(name, a.variable(), target.defined(name)));
    return weighted(name, relu(options.margin - t * (x - y)), options.weights, options.reduction);
  });
}

Variable pairwise_rank_loss(const Operand& a, const Operand& b, const MarginOptions& options) {
  return loss_of("pairwise_rank_loss", a, b, [&](const Variable& x, const Variable& y) {
    return weighted("pairwise_rank_loss", relu(options.margin - x + y), options.weights, options.reduction);
  });
}

Variable cosine_embedding_loss(const Operand& a, const Operand& b, const Operand& target,
                               const RankingOptions& options) {
  constexpr std::string_view name = "cosine_embedding_loss";
  return loss_of(name, a, b, [&](const Variable& x, const Variable& y) {
    if (x.rank() == 0) throw ShapeError("cosine_embedding_loss: scalars have no axis of a vector");
    const Variable cosine = cosine_of_rows(x, y);
    const Variable t =
        target.is_number() ? widened(target.like(x)) : paired(name, cosine, widened(target.defined(name)));
    return weighted(name, where(greater(t, 0.0), 1.0 - cosine, relu(cosine - options.margin)),
                    options.weights, options.reduction);
  });
}

Variable triplet_margin_loss(const Operand& anchor, const Operand& positive, const Operand& negative,
                             const TripletMarginOptions& options) {
  constexpr std::string_view name = "triplet_margin_loss";
  return loss_of(name, anchor, positive, [&](const Variable& a, const Variable& p) {
    if (!(options.p >= 1)) throw Error(fmt::format("{}: p is {}; it must be at least 1", name, options.p));
    if (a.rank() == 0) throw ShapeError("triplet_margin_loss: scalars have no axis of a vector");
    const Variable n = widened(paired(name, anchor.variable(), negative.defined(name)));
    const auto distance = [&](const Variable& x, const Variable& y) {
      return pairwise_distance(x, y, {.p = options.p, .epsilon = options.epsilon});
    };
    Variable away = distance(a, n);
    if (options.swap) away = minimum(away, distance(p, n));
    return weighted(name, relu(distance(a, p) - away + options.margin), options.weights, options.reduction);
  });
}

Variable multi_margin_loss(const Operand& scores, const Operand& labels, const MultiMarginOptions& options) {
  constexpr std::string_view name = "multi_margin_loss";
  const CallScope scope(scores.where());
  return located(scores.where(), [&] {
    const Variable &given = scores.defined(name), &y = labels.defined(name);
    check_power(name, options.power);
    check_labels(name, given, y, true);
    detail::check_class_weights(name, options.class_weights, given);
    const Variable x = widened(given);
    const auto classes = static_cast<double>(x.shape()[-1]);
    // The label's own term is margin^power: it is computed with the others, and taken away.
    const Variable terms =
        raised(relu(x - unsqueeze(pick_for(name, x, y), -1) + options.margin), options.power);
    const double own = std::max(options.margin, 0.0);
    Variable each = (sum(terms, -1) - (options.power == 2 ? own * own : own)) * (1 / classes);
    if (options.class_weights.defined()) each = each * gather(rounded(options.class_weights, x.dtype()), y);
    return rounded(weighted(name, each, options.weights, options.reduction), given.dtype());
  });
}

Variable sparsemax_loss(const Operand& scores, const Operand& labels, const LossOptions& options) {
  constexpr std::string_view name = "sparsemax_loss";
  const CallScope scope(scores.where());
  return located(scores.where(), [&] {
    const Variable &given = scores.defined(name), &y = labels.defined(name);
    const bool is_distribution = is_real(y.dtype());
    if (!is_distribution) check_labels(name, given, y, true);
    if (given.rank() == 0) throw ShapeError("sparsemax_loss: a scalar has no axis of classes");
    // What is added to all scores of a row changes nothing.
    const Variable all = widened(given), x = all - stop_gradient(max(all, -1, true)), p = sparsemax(x);
    Variable of_labels;
    if (is_distribution) {
      const Variable q = widened(paired(name, given, y));
      of_labels = sum(q * (counted(x, q) - q * 0.5), -1);
    } else {
      of_labels = pick_for(name, x, y) - 0.5;
    }
    const Variable each = sum(p * (counted(x, p) - p * 0.5), -1) - of_labels;
    return rounded(weighted(name, each, options.weights, options.reduction), given.dtype());
  });
}

Variable multilabel_margin_loss(const Operand& scores, const Operand& labels,
                                const MultiLabelMarginOptions& options) {
  constexpr std::string_view name = "multilabel_margin_loss";
  const CallScope scope(scores.where());
  return located(scores.where(), [&] {
    const Variable &given = scores.defined(name), &y = labels.defined(name);
    check_labels(name, given, y, false);
    const Variable x = widened(given);
    const int64_t classes = x.shape()[-1];
    Tensor up_to = zeros({classes, classes}, float64);
    for (int64_t i = 0; i < classes; ++i)
      for (int64_t j = i; j < classes; ++j) up_to.at<double>({i, j}) = 1;
    const Device device = x.device();
    // [..., i, j]: i runs over the labels of a row, j over the classes.
    const Variable ended = cast(less(y, 0), x.dtype());
    const Variable rows = matmul(unsqueeze(ended, -2), up_to.to(x.dtype()).to(device));
    const Variable is_label = equal(squeeze(rows, -2), 0.0);
    const Variable label = where(is_label, y, zeros_like(y));
    const Variable at = logical_and(unsqueeze(is_label, -1),
                                    equal(unsqueeze(label, -1), arange(classes, y.dtype()).to(device)));
    const Variable chosen = cast(at, x.dtype());
    const Variable others = 1.0 - max(chosen, -2, true);
    const Variable all = unsqueeze(x, -2) + zeros({classes, 1}, x.dtype()).to(device);
    const Variable of_label = unsqueeze(pick_for(name, all, label), -1);
    const Variable terms = relu(unsqueeze(x, -2) - of_label + 1.0) * others;
    const Variable counted = sum(terms, -1) * cast(is_label, x.dtype());
    const Variable each = sum(counted, -1) * (1.0 / static_cast<double>(classes));
    return rounded(weighted(name, each, options.weights, options.reduction), given.dtype());
  });
}

Variable multilabel_soft_margin_loss(const Operand& logits, const Operand& target,
                                     const MultiLabelSoftMarginOptions& options) {
  constexpr std::string_view name = "multilabel_soft_margin_loss";
  return loss_of(name, logits, target, [&](const Variable& x, const Variable& t) {
    if (x.rank() == 0) throw ShapeError("multilabel_soft_margin_loss: a scalar has no axis of classes");
    detail::check_class_weights(name, options.class_weights, x);
    const Variable each = (1.0 - t) * x - log_sigmoid(x);
    const Variable of_rows = mean(weighted(name, each, options.class_weights, LossReduction::none), -1);
    return weighted(name, of_rows, options.weights, options.reduction);
  });
}

}  // namespace espalier
