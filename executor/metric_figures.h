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

/// exp(means[0] / means[1]): of losses and of the labels that count.
double perplexity(std::span<const double> means);

}  // namespace espalier::figures
