// ConfusionMatrix: how often each class was taken for each other.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "espalier/core/tensor.h"
#include "espalier/executor/callback.h"
#include "espalier/executor/kit/metrics.h"

namespace espalier {

/// Counts of (label, predicted class). Functions that take a class throw IndexError for one that there is
/// not.
class ConfusionMatrix {
 public:
  using Where = std::source_location;

  /// Without any count. Throws Error unless there is a class, ShapeError or OutOfMemory for too many.
  explicit ConfusionMatrix(int64_t classes, Where where = Where::current());
  ConfusionMatrix(const Tensor& predicted, const Tensor& labels, int64_t classes,
                  Where where = Where::current());

  /// Of such counts as `counts()` has. Throws ShapeError, TypeError unless they are int64, DataError for one
  /// below 0.
  static ConfusionMatrix of_counts(const Tensor& counts, Where where = Where::current());

  /// Counts these predicted classes and labels: integers, with one shape but for a last axis of 1. Throws
  /// ShapeError, TypeError, or IndexError for what is no class; then nothing was counted.
  void update(const Tensor& predicted, const Tensor& labels, Where where = Where::current());

  int64_t classes() const { return classes_; }
  /// All that was counted.
  int64_t total() const;
  /// How often `label` was taken for `predicted`.
  int64_t count(int64_t label, int64_t predicted, Where where = Where::current()) const;
  /// [classes, classes], int64: a row for each label.
  Tensor counts() const;

  // A figure whose denominator is 0 is 0.
  double accuracy() const;
  double precision(int64_t c, Where where = Where::current()) const;
  double recall(int64_t c, Where where = Where::current()) const;
  double f1_score(int64_t c, Where where = Where::current()) const;
  double precision(Average average = Average::macro) const;
  double recall(Average average = Average::macro) const;
  double f1_score(Average average = Average::macro) const;

 private:
  int64_t at(int64_t label, int64_t predicted) const {
    return counts_[static_cast<size_t>(label * classes_ + predicted)];
  }
  int64_t labels_of(int64_t c) const;
  int64_t predictions_of(int64_t c) const;
  void check(int64_t c, const char* what, const Where& where) const;
  template <class F>
  double average_of(Average average, F&& f) const;

  int64_t classes_;
  std::vector<int64_t> counts_;
};

/// A table: a row for each label, a column for each predicted class, and recall and precision at the edges.
std::ostream& operator<<(std::ostream& out, const ConfusionMatrix& matrix);

/// Keeps the matrix of each epoch of a run, of an output that is the Metric `confusion`: by "validation_" and
/// its name that of the validation rows.
///
///     const esp::ConfusionLog log("validation_confusion");
///     esp::fit(net, loss, {x, y},
///              {.validation = {v, w}, .metrics = {{"confusion", esp::confusion}}, .callbacks = {log}});
///     std::cout << log.matrices().back();
class ConfusionLog : public Callback {
 public:
  using Where = std::source_location;

  /// Throws Error for an empty name. `execute` throws Error if its epochs have no such figure, or it is
  /// another one.
  explicit ConfusionLog(std::string figure = "validation_confusion", Where where = Where::current());

  void initialize(TrainingRun& run) override;
  void epoch_finish(TrainingRun& run) override;
  /// Of the epochs of the last run, from its beginning or the checkpoint on. Copies of this share them.
  const std::vector<ConfusionMatrix>& matrices() const { return *matrices_; }

 private:
  std::string figure_;
  Where where_;
  std::shared_ptr<std::vector<ConfusionMatrix>> matrices_ = std::make_shared<std::vector<ConfusionMatrix>>();
};

}  // namespace espalier
