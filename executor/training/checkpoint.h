// Checkpoints: all that a run needs to go on, as files of a folder.
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

/// Where a run stands between two steps, beside what its leaves hold.
struct RunState {
  History history;      ///< the whole epochs
  EpochRecord record;   ///< of the epoch under way
  double weighted = 0;  ///< the sum of its losses, each times its samples
  int64_t step = 0;     ///< the next one in the epoch
  bool begun = false;   ///< whether Event::epoch_start has been told
};

/// A feed, with what shows that another one is like it.
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
  Generator random;
  std::vector<GemmChoice> products;
  RunState run;
};

/// Makes the folder, if it is not there, and sees whether it can be written. Throws FileError.
void make_checkpoint_folder(const std::filesystem::path& folder);

/// Adds a checkpoint to a folder. Whatever happens meanwhile, the last one before stays until this one is
/// whole and on disk; then all but these two go, as does what a killed process has left. Throws FileError.
void write_checkpoint(const std::filesystem::path& folder, const Checkpoint& checkpoint);

struct CheckpointFile {
  std::filesystem::path path;
  Checkpoint checkpoint;
};

/// The last checkpoint of a folder. Throws FileError if there is none, or if it is not what was written.
CheckpointFile read_checkpoint(const std::filesystem::path& folder);

}  // namespace espalier
