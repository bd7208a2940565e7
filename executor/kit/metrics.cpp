#include "espalier/executor/kit/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string_view>

#include "espalier/core/error.h"
#include "espalier/core/feed.h"
#include "espalier/core/loop_operand.h"
#include "espalier/core/node.h"
#include "espalier/core/tree.h"
#include "espalier/executor/metric_functions.h"
#include "espalier/ops/indexing/checked_indices.h"
#include "espalier/ops/losses/labels.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

/// The mean over the first axis of the sums over all others. Batches of rows then weigh by their rows alone.
Variable mean_over_rows(const Variable& x) {
  const Variable wide = cast(x, float64);
  if (wide.rank() < 2) return mean(wide);
  Dims axes;
  for (size_t axis = 1; axis < wide.rank(); ++axis) axes.push_back(static_cast<int64_t>(axis));
  return mean(sum(wide, Axes(std::move(axes))));
}

/// A row for each label: [rows, ..., classes] to [classes], as means over the first axis.
Variable means_of_classes(const Variable& x) {
  const Variable wide = cast(x, float64);
  Dims axes;
  for (size_t axis = 1; axis + 1 < wide.rank(); ++axis) axes.push_back(static_cast<int64_t>(axis));
  return mean(axes.empty() ? wide : sum(wide, Axes(std::move(axes))), 0);
}

/// The mean of all elements as they are now; 0 where they have no value.
double mean_now(const Variable& x) {
  for (const Node* node : nodes_below(TreeWalk(x.node()))) {
    const auto* feed = node->op().feed();
    if (is_loop_operand(node->op()) || (feed && ((*feed)->is_placeholder() || (*feed)->steps() < 1)))
      return 0;
  }
  const double now = mean(x).item();
  return std::isfinite(now) ? now : 0;
}

/// How often each number below `length` occurs, weighted, as a mean over rows of `rows`.
Variable count_means(const Variable& numbers, const Variable& weights, int64_t length, const Variable& rows,
                     std::string_view function) {
  const Variable none = zeros({length}, float64).to(weights.device());
  const Variable counts =
      scatter_add_like(reshape(weights, {-1}), reshape(numbers, {-1}), none, 0, function, false);
  return counts / cast(axis_size(rows, 0), float64);
}

/// `figure`: the function of the counts of classes, and the name in errors.
Metric class_metric(std::string_view figure, const Operand& logits, const Operand& labels,
                    const ClassMetricOptions& options) {
  const CallScope scope(logits.where(), figure);
  return located(*build_context().where, [&] {
    const Variable& x = logits.defined(figure);
    const Variable label = cast(labels_of_rows(x, labels.defined(figure), figure), int64);
    if (label.rank() == 0)
      throw ShapeError(fmt::format("{}: logits of shape {} have no axis of rows", figure, x.shape().str()));
    const int64_t classes = x.shape()[-1];
    if (options.of_class && (*options.of_class < 0 || *options.of_class >= classes))
      throw Error(fmt::format("{}: there is no class {} among {}", figure, *options.of_class, classes));
    const Variable predicted = argmax(x, -1);
    if (options.average == Average::micro && !options.of_class) {
      const Variable hits = mean_over_rows(equal(predicted, label)), all = mean_over_rows(ones_like(label));
      return Metric({hits, all}, metric_function("ratio"), logits.where());
    }
    const Variable one_predicted = one_hot(predicted, classes, float64),
                   one_label = one_hot(label, classes, float64);
    const Variable columns[] = {means_of_classes(one_predicted * one_label), means_of_classes(one_predicted),
                                means_of_classes(one_label)};
    const int64_t first = options.of_class.value_or(0), end = options.of_class ? first + 1 : classes;
    std::vector<Variable> means;
    for (int64_t c = first; c < end; ++c)
      for (const Variable& column : columns) means.push_back(squeeze(slice(column, 0, c, c + 1)));
    return Metric(std::move(means), metric_function(figure), logits.where());
  });
}

}  // namespace

Metric precision(const Operand& logits, const Operand& labels, const ClassMetricOptions& options) {
  return class_metric("precision", logits, labels, options);
}
Metric recall(const Operand& logits, const Operand& labels, const ClassMetricOptions& options) {
  return class_metric("recall", logits, labels, options);
}
Metric f1_score(const Operand& logits, const Operand& labels, const ClassMetricOptions& options) {
  return class_metric("f1_score", logits, labels, options);
}

Metric r2_score(const Operand& prediction, const Operand& target) {
  const CallScope scope(prediction.where());
  return located(*build_context().where, [&] {
    const Variable &p = prediction.defined("r2_score"), &t = target.defined("r2_score");
    if (!(p.shape() == t.shape()) || p.rank() == 0)
      throw ShapeError(fmt::format("r2_score: a prediction of shape {} and a target of shape {}",
                                   p.shape().str(), t.shape().str()));
    if (!is_real(p.dtype()) || !is_real(t.dtype()))
      throw TypeError(
          fmt::format("r2_score: both are real, not {} and {}", name(p.dtype()), name(t.dtype())));
    const Variable y = cast(t, float64);
    const Variable center = full({}, mean_now(y), float64).to(y.device()), centered = y - center;
    return Metric({mean_over_rows(square(y - cast(p, float64))), mean_over_rows(centered),
                   mean_over_rows(square(centered)), mean_over_rows(ones_like(y)), center},
                  metric_function("centered_r2_score"), prediction.where());
  });
}

Metric perplexity(const Operand& logits, const Operand& labels, std::optional<int64_t> ignored) {
  const CallScope scope(logits.where());
  return located(*build_context().where, [&] {
    const Variable& x = logits.defined("perplexity");
    const Variable y = labels_of_rows(x, labels.defined("perplexity"), "perplexity");
    if (y.rank() == 0)
      throw ShapeError(fmt::format("perplexity: logits of shape {} have no axis of rows", x.shape().str()));
    const Variable losses =
        softmax_cross_entropy(x, y, {.ignored_label = ignored, .reduction = LossReduction::none});
    const Variable counted = ignored ? not_equal(y, *ignored) : ones_like(y);
    return Metric({mean_over_rows(losses), mean_over_rows(counted)}, metric_function("perplexity"),
                  logits.where());
  });
}

Metric auc_score(const Operand& scores, const Operand& labels) {
  const CallScope scope(scores.where());
  return located(*build_context().where, [&] {
    const Variable &s = scores.defined("auc_score"), &l = labels.defined("auc_score");
    if (!is_real(s.dtype()))
      throw TypeError(fmt::format("auc_score: scores are real, not {}", name(s.dtype())));
    if (s.rank() == 0 || s.shape().elements() != l.shape().elements())
      throw ShapeError(fmt::format("auc_score: scores of shape {} and labels of shape {}", s.shape().str(),
                                   l.shape().str()));
    const Variable x = clamp(cast(reshape(s, {-1}), float64), -1e300, 1e300),
                   y = cast(reshape(l, {-1}), float64);
    const Variable valid = logical_and(equal(x, x), logical_or(equal(y, 0.0), equal(y, 1.0)));
    const Variable place = floor((x / (abs(x) + 1.0) + 1.0) * (auc_bins / 2.0));
    const Variable bins = cast(minimum(where(valid, place, 0.0), auc_bins - 1.0), int64);
    const Variable positive = where(valid, y, std::numeric_limits<double>::quiet_NaN());
    return Metric({count_means(bins, positive, auc_bins, s, "auc_score"),
                   count_means(bins, 1.0 - positive, auc_bins, s, "auc_score")},
                  metric_function("auc"), scores.where());
  });
}

Metric confusion(const Operand& logits, const Operand& labels) {
  const CallScope scope(logits.where());
  return located(*build_context().where, [&] {
    const Variable& x = logits.defined("confusion");
    const Variable label = cast(labels_of_rows(x, labels.defined("confusion"), "confusion"), int64);
    if (label.rank() == 0)
      throw ShapeError(fmt::format("confusion: logits of shape {} have no axis of rows", x.shape().str()));
    const int64_t classes = x.shape()[-1];
    const Variable cell =
        checked_indices(label, x, -1, false, "confusion") * classes + cast(argmax(x, -1), int64);
    const Variable counts =
        count_means(cell, ones_like(cast(label, float64)), classes * classes, label, "confusion");
    return Metric({reshape(counts, {classes, classes})}, metric_function("confusion"), logits.where());
  });
}

}  // namespace espalier
