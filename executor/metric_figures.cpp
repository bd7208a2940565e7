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

double centered_r2_score(std::span<const double> means) {
  constexpr double rounding = 1e-14;  // of the sums, beside which nothing may be left
  const double total = means[2] - means[1] * means[1] / means[3];
  return total > rounding * means[2] ? 1 - means[0] / total : std::numeric_limits<double>::quiet_NaN();
}

void move_center(std::span<double> batch, std::span<const double> others) {
  const double by = batch[4] - others[4];
  if (!(std::abs(by) > 1e-15 * std::abs(others[4]))) return;  // equal, as far as a quotient tells
  batch[2] += by * (2 * batch[1] + by * batch[3]);
  batch[1] += by * batch[3];
  batch[4] = others[4];
}

double auc(std::span<const double> means) {
  const std::span<const double> positives = means.first(means.size() / 2),
                                negatives = means.last(means.size() / 2);
  double below = 0, all = 0, won = 0;  // `below`: the negatives so far
  for (size_t bin = 0; bin < negatives.size(); ++bin) {
    won += positives[bin] * (below + negatives[bin] / 2);
    below += negatives[bin];
    all += positives[bin];
  }
  return all > 0 && below > 0 ? won / (all * below) : std::numeric_limits<double>::quiet_NaN();
}

double accuracy(std::span<const double> means) {
  const auto classes = static_cast<size_t>(std::lround(std::sqrt(static_cast<double>(means.size()))));
  double right = 0, all = 0;
  for (size_t i = 0; i < means.size(); ++i) {
    all += means[i];
    if (i % (classes + 1) == 0) right += means[i];
  }
  return ratio_or_zero(right, all);
}

double perplexity(std::span<const double> means) { return std::exp(means[0] / means[1]); }

}  // namespace espalier::figures
