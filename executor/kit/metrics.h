// Metrics that are no means over samples: for `ExecutorOptions::outputs`, for MetricAccumulator, and by
// `value()` for what was computed eagerly.
#pragma once
#include <cstdint>
#include <optional>
#include <source_location>

#include "espalier/core/variable.h"
#include "espalier/executor/metric.h"
#include "espalier/ops/functions/metrics.h"

namespace espalier {

/// How figures of classes become one.
enum class Average : uint8_t {
  macro,  ///< the mean over the classes that labels or predictions have
  micro,  ///< of all labels together; with one label for each row all three figures are the accuracy
};
struct ClassMetricOptions {
  Average average = Average::macro;
  /// The figure of this class alone.
  std::optional<int64_t> of_class = {};
};

// The predicted class is that of the largest logit. logits [..., classes]; labels [...] or [..., 1] of
// integers, whose first axis has the rows. A figure whose denominator is 0 is 0. Macro averages compute two
// or three numbers for each class. Throw ShapeError, TypeError, Error for a class that there is not, and
// IndexError, when they are computed, for a label that is no class.

/// True positives / predictions of the class.
Metric precision(const Operand& logits, const Operand& labels, const ClassMetricOptions& options = {});
/// True positives / labels of the class.
Metric recall(const Operand& logits, const Operand& labels, const ClassMetricOptions& options = {});
/// 2 · true positives / (predictions + labels of the class): the harmonic mean of precision and recall.
Metric f1_score(const Operand& logits, const Operand& labels, const ClassMetricOptions& options = {});

/// R² = 1 − Σ (target − prediction)² / Σ (target − mean)², over all elements of all samples, which have one
/// shape and rows on the first axis. Sums are of differences from the mean that the target has when this is
/// called (in an executor, that of the first batch), so a mean that is large beside the deviation costs no
/// digits; from 0 if the target is a placeholder without a value. NaN for a constant target. Throws
/// ShapeError or TypeError.
Metric r2_score(const Operand& prediction, const Operand& target);

/// exp(Σ −log softmax(logits)[label] / number of labels), over all samples. Labels equal to `ignored` do not
/// count. Throws as softmax_cross_entropy.
Metric perplexity(const Operand& logits, const Operand& labels, std::optional<int64_t> ignored = {});

/// How many bins of scores `auc_score` counts.
inline constexpr int64_t auc_bins = 8192;
/// The probability that a positive has a larger score than a negative, where equal ones count half: the area
/// under the ROC curve. Of an epoch it is exact for scores s that are counted in bins: s / (1 + |s|), from −1
/// to 1, in `auc_bins` of one width, so scores that differ by less than (1 + |s|)² / 4096 may count as equal.
/// Logits tell more apart than the probabilities near 0 and 1 that they become. `auc` (kit/auc.h) is exact
/// for tensors. Scores are real, labels 0 or 1 of any real or integer type, both with rows on the first axis
/// and as many elements. NaN unless there are positives and negatives, and for other labels or a score that
/// is NaN. Each step adds up two numbers for each bin. Throws ShapeError or TypeError.
Metric auc_score(const Operand& scores, const Operand& labels);

/// The matrix of how often each label [classes] was taken for each class; its figure is the accuracy. A
/// ConfusionLog (kit/confusion_matrix.h) keeps the matrices of a run. Throws ShapeError, TypeError, and
/// IndexError, when it is computed, for a label that is no class.
Metric confusion(const Operand& logits, const Operand& labels);

}  // namespace espalier
