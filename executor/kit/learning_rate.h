// Callbacks about the learning rate.
#pragma once
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "espalier/executor/callback.h"
#include "espalier/executor/kit/best_figure.h"

namespace espalier {

/// Notes the learning rate behind each epoch, with its schedule: that of the step to come. `execute` throws
/// Error if the executor was made without an optimizer, or its rate is no setting.
class LearningRateLog : public Callback {
 public:
  using Where = std::source_location;

  void initialize(TrainingRun& run) override;
  void epoch_finish(TrainingRun& run) override;
  /// Of the last run, from its beginning: one more than it has epochs. Groups have rates each. Copies of this
  /// share them. Throws IndexError for a group that there is not.
  const std::vector<double>& rates(size_t group = 0, Where where = Where::current()) const;

 private:
  using Rates = std::vector<std::vector<double>>;  // of each group
  std::shared_ptr<Rates> rates_ = std::make_shared<Rates>(1);
};

struct ReduceLROnPlateauOptions {
  std::string monitor = "validation_loss";  ///< a figure of epochs (TrainingRun::figure)
  double factor = 0.1;                      ///< by which the learning rate is multiplied
  int64_t patience = 10;                    ///< epochs in a row that are not better before it is
  double minimum_delta = 0;                 ///< by how much better an epoch must be
  bool maximize = false;                    ///< larger figures are better
  int64_t cooldown = 0;                     ///< epochs behind a reduction that do not count
  double minimum = 0;                       ///< the rate is never set below
};

/// Reduces the optimizer's setting "lr", which a schedule multiplies, when epochs get no better.
class ReduceLROnPlateau : public Callback {
  /// What `{}` converts to at best, so that `ReduceLROnPlateau({})` means default options and not a copy.
  enum class NoOptions : uint8_t {};

 public:
  using Where = std::source_location;

  /// Throws Error for a factor outside (0, 1), a patience below 1, or another number that makes no sense.
  /// `execute` throws Error if its epochs have no such figure, or without an optimizer.
  explicit ReduceLROnPlateau(const ReduceLROnPlateauOptions& options, Where where = Where::current());
  ReduceLROnPlateau() : ReduceLROnPlateau(ReduceLROnPlateauOptions()) {}
  explicit ReduceLROnPlateau(NoOptions) : ReduceLROnPlateau() {}

  void initialize(TrainingRun& run) override;
  void epoch_finish(TrainingRun& run) override;

 private:
  /// Whether the rate is to be reduced behind the epoch.
  bool add(const EpochRecord& epoch);

  ReduceLROnPlateauOptions options_;
  BestFigure best_;
  int64_t cooling_ = 0;  // epochs still to come that do not count
};

}  // namespace espalier
