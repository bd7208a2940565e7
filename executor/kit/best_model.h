// BestModel: keeps the best parameters of a run in a file.
#pragma once
#include <filesystem>
#include <source_location>
#include <string>

#include "espalier/executor/callback.h"
#include "espalier/executor/kit/best_figure.h"
#include "espalier/nn/module.h"

namespace espalier {

struct BestModelOptions {
  std::string monitor = "validation_loss";  ///< a figure of epochs (TrainingRun::figure)
  double minimum_delta = 0;                 ///< by how much better an epoch must be
  bool maximize = false;                    ///< larger figures are better
};

/// Saves a module (nn::save) after each epoch that is better than those before. After `resume`, the epochs
/// before count.
class BestModel : public Callback {
 public:
  using Where = std::source_location;

  /// Throws FileError for an empty path, or Error. `execute` throws Error if its epochs have no such figure,
  /// and FileError if the file cannot be written.
  BestModel(const nn::Module& module, std::filesystem::path file, const BestModelOptions& options = {},
            Where where = Where::current());

  void initialize(TrainingRun& run) override;
  void epoch_finish(TrainingRun& run) override;

 private:
  nn::Module module_;
  std::filesystem::path file_;
  Where where_;
  BestFigure best_;
};

}  // namespace espalier
