// What a plan computes beside the tree's value, and figures over an epoch that are no means over its samples.
#pragma once
#include <cstdint>
#include <functional>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

/// A figure that is a function of means over samples: precision, for one, is the mean of true positives
/// divided by the mean of positives. A batch computes the means, an epoch averages them over its samples, and
/// only then the function is applied. So the figure is that of all samples, whatever the sizes of batches and
/// however many replicas. See executor/kit/metrics.h.
class Metric {
 public:
  using Where = std::source_location;
  using Finish = std::function<double(std::span<const double> means)>;

  /// `means` are real, each a mean over the rows of the batch; float64 loses nothing that counts. `finish`
  /// gets the elements of their means over all samples, in the same order. Throws Error if there are none or
  /// one is undefined, TypeError if one is not real, ShapeError if an axis of it is open.
  Metric(std::vector<Variable> means, Finish finish, Where where = Where::current());

  const std::vector<Variable>& means() const { return means_; }
  const Finish& finish() const { return finish_; }
  /// The figure of the batch that the means were computed from.
  double value(Where where = Where::current()) const;

 private:
  std::vector<Variable> means_;
  Finish finish_;
};

/// Adds up a Metric over batches in a loop of one's own.
class MetricAccumulator {
 public:
  /// Counts the metric of a batch with that many samples. Throws Error unless there is at least one, or if
  /// another metric with another number of means was added before.
  void add(const Metric& batch, int64_t samples,
           std::source_location where = std::source_location::current());
  int64_t samples() const { return samples_; }
  /// The figure over all samples. Throws Error before the first `add`.
  double value(std::source_location where = std::source_location::current()) const;
  void reset();

 private:
  std::vector<double> sums_;
  Metric::Finish finish_;
  int64_t samples_ = 0;
};

/// An output beside the tree's value: any Variable, or a Metric.
class PlanOutput {
 public:
  /// An undefined Variable, which get_executor refuses.
  PlanOutput() : variables_{Variable()} {}
  PlanOutput(const Variable& variable) : variables_{variable} {}
  PlanOutput(const Metric& metric) : variables_(metric.means()), finish_(metric.finish()) {}

  /// One, or the means of a Metric.
  const std::vector<Variable>& variables() const { return variables_; }
  /// Empty unless it is a Metric.
  const Metric::Finish& finish() const { return finish_; }

 private:
  std::vector<Variable> variables_;
  Metric::Finish finish_;
};

}  // namespace espalier
