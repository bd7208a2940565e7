#include "espalier/executor/kit/metrics.h"

#include <fmt/format.h>

#include <string_view>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/executor/metric_functions.h"
#include "espalier/ops/losses/labels.h"
#include "espalier/ops/ops.h"

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
    return Metric({mean_over_rows(square(y - cast(p, float64))), mean_over_rows(y), mean_over_rows(square(y)),
                   mean_over_rows(ones_like(y))},
                  metric_function("r2_score"), prediction.where());
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

}  // namespace espalier
