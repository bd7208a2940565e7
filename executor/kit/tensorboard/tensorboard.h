// TensorBoard: a callback that writes what a run is doing for TensorBoard.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "espalier/executor/callback.h"
#include "espalier/executor/kit/tensorboard/summary_writer.h"
#include "espalier/nn/module.h"

namespace espalier {

struct TensorBoardOptions {
  bool graph = true;                      ///< the tree that is trained
  int64_t scalars_every = 0;              ///< also the loss of every so many steps; 0: of epochs alone
  int64_t histograms_every = 0;           ///< epochs between histograms of parameters; 0: none
  std::optional<nn::Module> module = {};  ///< whose parameters these are, by their paths; else the tree's
  bool hyperparameters = true;            ///< the optimizer's settings, and those below
  std::vector<std::pair<std::string, HyperParameter>> values = {};  ///< further hyper-parameters
};

/// After each epoch: its loss, validation loss, outputs and learning rate, as scalars over epochs from 1:
/// "epoch/loss", "epoch/validation_loss", "epoch/accuracy", "epoch/validation_accuracy",
/// "epoch/learning_rate". With `scalars_every`, "step/loss" over steps, for which each step waits for its
/// loss. Every run writes a file of its own; in a job, the first process alone does. Steps and epochs of a
/// further run of the executor go on behind those of the run before. `execute` throws FileError, with the
/// line where this was made, if it cannot be written.
class TensorBoard : public Callback {
 public:
  using Where = std::source_location;

  /// Throws Error for a negative number of steps or epochs, and FileError for an empty path.
  explicit TensorBoard(std::filesystem::path folder, const TensorBoardOptions& options = {},
                       Where where = Where::current());

  EventSet events(EventSet overridden) const override;
  void initialize(TrainingRun& run) override;
  void step_finish(TrainingRun& run) override;
  void epoch_finish(TrainingRun& run) override;
  void teardown(TrainingRun& run) override;

 private:
  void write_hyperparameters(const TrainingRun& run);
  void write_histograms(const TrainingRun& run, int64_t epoch);

  std::filesystem::path folder_;
  TensorBoardOptions options_;
  Where where_;
  int64_t steps_ = 0, epochs_ = 0;                  // of this run
  int64_t earlier_steps_ = 0, earlier_epochs_ = 0;  // of the runs before
  std::optional<SummaryWriter> writer_;             // while a run lasts, in the first process
};

}  // namespace espalier
