// Plan files: a step before the passes, with the values of its leaves and the state of its run.
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "espalier/data/distributor.h"
#include "espalier/executor/training/checkpoint.h"
#include "espalier/executor/training/setup.h"

namespace espalier {

/// A feed of the step that was saved.
struct SavedFeed {
  std::string name;
  bool placeholder = true;
  std::vector<Spec> specs;           ///< open axes are -1
  std::vector<std::string> columns;  ///< the names of what it shows
};

class PlanText;
/// The feeds that a text lists. Throws FileError.
std::vector<SavedFeed> saved_feeds(const PlanText& in, const nlohmann::json& list);

/// The state of a run without leaves, and whether it was saved within the run.
struct SavedRun {
  Checkpoint state;
  bool within = false;
};

/// What a file holds, its tree made again on the CPU.
struct SavedPlan {
  Variable root;
  std::vector<std::pair<std::string, PlanOutput>> outputs;
  BuiltStep step;  ///< training
  Mode mode = Mode::inference;
  Precision precision = Precision::float32;
  int accumulate = 1;
  std::vector<SavedFeed> feeds;
  SavedRun run;
};

/// The mode of what was saved. Throws FileError.
Mode saved_mode(const PlanText& in, const nlohmann::json& text);

/// Writes a whole file, or none. `columns` are the
/// names of what feeds with data show. Throws FileError, UnsupportedError for what a file cannot hold, and
/// Error for names that do not fit.
void write_plan(const std::filesystem::path& path, const Setup& setup, const SavedRun& run,
                const std::vector<std::string>& columns);

/// Makes the tree of a file. Feeds with data show that of `data`, in their order; if that is empty, each of
/// their columns becomes a placeholder of its name. Throws FileError for a file that is not what was written,
/// and DataError for data of other shapes. `where` is the line of all nodes.
SavedPlan read_plan(const std::filesystem::path& path, const std::vector<data::Distributor>& data,
                    const std::source_location& where);

}  // namespace espalier
