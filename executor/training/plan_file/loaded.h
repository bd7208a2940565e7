// From a plan file to what an executor is made of.
#pragma once
#include <filesystem>

#include "espalier/executor/load.h"
#include "espalier/executor/training/plan_file/plan_file.h"

namespace espalier {

struct LoadedStep {
  Variable root;
  ExecutorOptions options;
  std::optional<BuiltStep> step;  ///< without: the options have an optimizer, or nothing is trained
  SavedRun run;
  bool continues = false;  ///< whether the executor goes on where `run` was
};

/// Reads a file and settles the options. Throws what load_executor throws, and sets the libraries of products
/// that the run took, if it continues.
LoadedStep load_step(const std::filesystem::path& path, const LoadOptions& options,
                     const std::source_location& where);

}  // namespace espalier
