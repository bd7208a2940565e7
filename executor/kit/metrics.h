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
/// shape and rows on the first axis. The mean is subtracted last, from float64 sums, so targets should not be
/// large beside their deviation. NaN for a constant target. Throws ShapeError or TypeError.
Metric r2_score(const Operand& prediction, const Operand& target);

/// exp(Σ −log softmax(logits)[label] / number of labels), over all samples. Labels equal to `ignored` do not
/// count. Throws as softmax_cross_entropy.
Metric perplexity(const Operand& logits, const Operand& labels, std::optional<int64_t> ignored = {});

}  // namespace espalier
