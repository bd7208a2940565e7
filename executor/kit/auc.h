// The area under the curve of true positives over false positives.
#pragma once
#include <cstdint>
#include <source_location>
#include <utility>
#include <vector>

#include "espalier/core/tensor.h"

namespace espalier {

/// The probability that a positive has a larger score than a negative, where equal ones count half: exact, as
/// Mann and Whitney's U, On a test of whether one of two random variables is stochastically larger, 1947.
///
/// `auc_score` (kit/metrics.h) is that of scores in bins, as a Metric of runs. Exactly for an epoch, also of
/// several replicas, scores and labels are outputs that each step adds,
///
///     executor.on(Event::step_finish, [=](const StepInfo&) mutable {
///       all.add(executor.output("scores"), executor.output("labels"));
///     });
///
/// or `auc(predict(net, x), y)` is that of other samples.
class Auc {
 public:
  using Where = std::source_location;

  /// Keeps these real scores and labels, 0 or 1 of any type, both with as many elements. Throws ShapeError,
  /// TypeError, DataError for another label or a score that is NaN; then nothing was added.
  void add(const Tensor& scores, const Tensor& labels, Where where = Where::current());
  /// Over all that was added. Throws DataError unless there are positives and negatives.
  double value(Where where = Where::current()) const;
  void reset() { scores_.clear(); }

 private:
  std::vector<std::pair<double, bool>> scores_;
};

/// The same of one tensor of scores and one of labels.
double auc(const Tensor& scores, const Tensor& labels,
           std::source_location where = std::source_location::current());

}  // namespace espalier
