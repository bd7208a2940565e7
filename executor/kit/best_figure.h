// BestFigure: the best epoch so far by one of its figures.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "espalier/executor/callback.h"

namespace espalier {

struct BestFigureOptions {
  std::string monitor;
  double minimum_delta = 0;
  bool maximize = false;
};

/// An epoch is better than the best one if its figure is so by more than `minimum_delta`; a figure that is
/// NaN never is.
class BestFigure {
 public:
  /// Throws Error, whose message begins with `caller`, for a delta that is negative or NaN, and for an empty
  /// name.
  BestFigure(std::string caller, BestFigureOptions options);

  enum class Past : uint8_t { counts, ignored };
  /// Begins anew, with the epochs that the run has behind it if they count. Throws Error if its epochs have
  /// no such figure.
  void begin(const TrainingRun& run, Past past = Past::counts);
  /// Returns whether the epoch is better than those before it.
  bool add(const EpochRecord& epoch);
  /// How many epochs have come since the best one, or without any.
  int64_t epochs_since() const { return epochs_since_; }
  /// As if the last epoch had been the best one, whose figure stays.
  void restart_count() { epochs_since_ = 0; }
  const std::optional<double>& best() const { return best_; }

 private:
  std::string caller_;
  BestFigureOptions options_;
  std::optional<double> best_;
  int64_t epochs_since_ = 0;
};

}  // namespace espalier
