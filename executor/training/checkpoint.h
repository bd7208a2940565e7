// Checkpoints: files with everything that a run needs to continue.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/files/safetensors.h"
#include "espalier/core/random.h"
#include "espalier/executor/history.h"
#include "espalier/ops/matmul/gemm_choice.h"

namespace espalier {

/// The state of a run between two steps, without the leaves.
struct RunState {
  History history;      ///< the finished epochs
  EpochRecord record;   ///< of the current epoch
  double weighted = 0;  ///< the sum over its steps of loss times samples
  int64_t step = 0;     ///< the next step of the epoch
  bool begun = false;   ///< whether the callbacks of Event::epoch_start have been called
  std::vector<double> weighted_outputs = {};  ///< as `weighted`, for each number of the outputs
};

/// The epoch of a feed, and the properties by which a checkpoint is matched with a program.
struct FeedState {
  std::string name;
  int64_t epoch = 0;
  int64_t steps = 0;
  int64_t last_rows = 0;
  std::vector<Spec> specs;
};

struct OptimizerSettings {
  std::string name;
  std::vector<std::pair<std::string, double>> values;
};

struct Checkpoint {
  NamedTensors leaves;  ///< in the order in which they were written
  std::vector<FeedState> feeds;
  std::optional<OptimizerSettings> optimizer;
  std::vector<std::string> scalars;  ///< names of the outputs that the history has means of
  Generator random;
  std::vector<GemmChoice> products;
  RunState run;
};

/// Makes the folder if it does not exist. Throws FileError if it cannot be made or written.
void make_checkpoint_folder(const std::filesystem::path& folder);

/// Adds a checkpoint to a folder. The previous one is kept until the new one is complete and on disk; then
/// all others are removed, and files that a killed process has left. Throws FileError.
void write_checkpoint(const std::filesystem::path& folder, const Checkpoint& checkpoint);

/// All of a checkpoint as a text and tensors, as files keep it, and back. `path` is for errors. Throws
/// FileError for numbers of which no checkpoint is made.
std::string checkpoint_text(const Checkpoint& checkpoint);
NamedTensors checkpoint_tensors(const Checkpoint& checkpoint);
Checkpoint checkpoint_from(const std::filesystem::path& path, const std::string& text, NamedTensors tensors);

struct CheckpointFile {
  std::filesystem::path path;
  Checkpoint checkpoint;
};

/// The last checkpoint of a folder. Throws FileError if there is none or it is damaged.
CheckpointFile read_checkpoint(const std::filesystem::path& folder);

}  // namespace espalier
