// What the metrics of the kit compute of means over samples.
#pragma once
#include <span>

namespace espalier::figures {

/// means[0] / means[1], or 0 where that is 0.
double ratio(std::span<const double> means);

// The mean over the classes that labels or predictions have of the figure of each; `means` are three for each
// class, of true positives, predictions and labels. A figure whose denominator is 0 is 0.
/// True positives / predictions.
double precision(std::span<const double> means);
/// True positives / labels.
double recall(std::span<const double> means);
/// 2 · true positives / (predictions + labels).
double f1_score(std::span<const double> means);

/// 1 − Σ (y − p)² / Σ (y − ȳ)², of the means of (y − p)², y, y² and 1 over rows; NaN if y is constant.
double r2_score(std::span<const double> means);

/// The same of the means of (y − p)², y − c, (y − c)², 1 and c, where c is a number near the mean of y: sums
/// of squares of large targets would lose what is left when the mean is subtracted.
double centered_r2_score(std::span<const double> means);
/// Has the means of a batch be about the center of others.
void move_center(std::span<double> batch, std::span<const double> others);

/// The area under the ROC curve from the shares of positives, and then of negatives, in bins of rising
/// scores; NaN unless there are both.
double auc(std::span<const double> means);
/// The share of the diagonal in a matrix.
double accuracy(std::span<const double> means);

/// exp(means[0] / means[1]): of losses and of the labels that count.
double perplexity(std::span<const double> means);

}  // namespace espalier::figures
