// EpochLoop: one call of Executor::execute: epochs of steps, validation, checkpoints, and reasons to end
// early.
#pragma once
#include <optional>
#include <vector>

#include "espalier/executor/training/interrupt.h"
#include "espalier/executor/training/progress.h"
#include "espalier/executor/training/trainer.h"

namespace espalier {

class EpochLoop {
 public:
  /// Runs epochs until there are as many as the options say, a callback stops the run, or SIGINT comes.
  static History run(Trainer& trainer, const ExecuteOptions& options);

 private:
  EpochLoop(Trainer& trainer, const ExecuteOptions& options);
  /// All of the run, with what callbacks are told around it.
  History run_with_callbacks();
  void run_epochs();
  /// Leaves the last checkpoint.
  History finish_run();
  /// Goes on with the epoch to its end. Returns false if SIGINT or stop() came before.
  bool run_epoch();
  void take_step(StepInfo& info, double seconds_before, const Stopwatch& watch);
  /// The losses over the validation feed, and the numbers of the outputs; none if SIGINT came before
  /// its end.
  std::optional<StepSums> validate();
  void finish_epoch(StepInfo& info);
  /// Whether SIGINT came to any process. Notes whether a callback called stop() in any process. `told` is the
  /// event that callbacks were told of just now.
  bool interrupted(std::optional<Event> told = {});
  /// As that of the Trainer. Throws NumericError for a loss that is NaN, if the options say so; with a loss
  /// scale, when such losses have brought its factor to the least.
  double settle_losses();
  void leave_checkpoint();

  Trainer& trainer_;
  const ExecuteOptions& options_;
  BatchReaders readers_;
  std::optional<BatchReaders> validation_;
  Progress progress_;
  Interrupt interrupt_;
  bool interrupted_ = false;        // also if the signal came to another process
  bool ends_within_epoch_ = false;  // by stop()
  // With a loss scale: by how many halvings its factor is smaller because of losses that are NaN, at least.
  int64_t skipped_ = 0, good_in_row_ = 0;
  bool unsaved_ = false;  // whether something was done since the last checkpoint
};

}  // namespace espalier
