#include "espalier/executor/metric_figures.h"

#include <cmath>
#include <cstdint>
#include <limits>

namespace espalier::figures {

namespace {

double ratio_or_zero(double a, double b) { return b == 0 ? 0 : a / b; }

/// `of_predictions`, `of_labels`: which of both the figure of a class divides by.
double mean_over_classes(std::span<const double> means, bool of_predictions, bool of_labels) {
  const double weight = 1.0 / (of_predictions + of_labels);
  double total = 0;
  int64_t present = 0;
  for (; means.size() >= 3; means = means.subspan(3)) {
    if (means[1] == 0 && means[2] == 0) continue;
    total += ratio_or_zero(means[0], weight * (of_predictions * means[1] + of_labels * means[2]));
    ++present;
  }
  return ratio_or_zero(total, static_cast<double>(present));
}

}  // namespace

double ratio(std::span<const double> means) { return ratio_or_zero(means[0], means[1]); }

double precision(std::span<const double> means) { return mean_over_classes(means, true, false); }
double recall(std::span<const double> means) { return mean_over_classes(means, false, true); }
double f1_score(std::span<const double> means) { return mean_over_classes(means, true, true); }

double r2_score(std::span<const double> means) {
  const double total = means[2] - means[1] * means[1] / means[3];
  return total > 0 ? 1 - means[0] / total : std::numeric_limits<double>::quiet_NaN();
}

double perplexity(std::span<const double> means) { return std::exp(means[0] / means[1]); }

}  // namespace espalier::figures
