// EarlyStopping: ends a run that no longer gets better.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string>

#include "espalier/executor/callback.h"

namespace espalier {

struct EarlyStoppingOptions {
  std::string monitor = "validation_loss";  ///< a figure of epochs (TrainingRun::figure)
  int64_t patience = 5;                     ///< epochs in a row that are not better before the run ends
  double minimum_delta = 0;                 ///< by how much better an epoch must be
  bool maximize = false;                    ///< larger figures are better
  /// When the run ends, unless by an exception, parameters and states of the tree get the values that they
  /// had after the best epoch. They are copied after each epoch that is better. The optimizer's states stay.
  bool restore_best = false;
};

/// After `resume`, the epochs before count; their values are not there to restore.
class EarlyStopping : public Callback {
  /// What `{}` converts to at best, so that `EarlyStopping({})` means default options and not a copy.
  enum class NoOptions : uint8_t {};

 public:
  using Where = std::source_location;

  /// Throws Error for a patience below 1, or a delta that is no size. `execute` throws Error if its epochs
  /// have no such figure.
  explicit EarlyStopping(const EarlyStoppingOptions& options, Where where = Where::current());
  EarlyStopping() : EarlyStopping(EarlyStoppingOptions()) {}
  explicit EarlyStopping(NoOptions) : EarlyStopping() {}

  void initialize(TrainingRun& run) override;
  void epoch_finish(TrainingRun& run) override;
  void teardown(TrainingRun& run) override;

  // Of the last run; copies of this share it.
  /// The epoch, from 0, after which it stopped the run; none if it did not.
  std::optional<int64_t> stopped_epoch() const;
  /// The best figure; none before there is one.
  std::optional<double> best() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace espalier
