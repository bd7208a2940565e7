// An optimizer's state to a file and back, for loops of one's own; executors have checkpoints.
#pragma once
#include <filesystem>

#include "espalier/optim/optimizer.h"

namespace espalier::optim {

/// Parameters by name, as Module::parameters() gives them.
using NamedParameters = std::vector<std::pair<std::string, Variable>>;

/// Writes the states of these parameters, the optimizer's own state and its settings, as safetensors. A file
/// that was there is replaced only when the new one is complete. Throws FileError.
void save(const Optimizer& optimizer, const NamedParameters& parameters, const std::filesystem::path& file,
          std::source_location where = std::source_location::current());

/// Gives an optimizer of the same kind what `save` has written, so that a loop goes on bit by bit if its
/// parameters and random state are also what they were. Parameters that had not been updated have no states.
/// Throws FileError if it is a file of another kind of optimizer, or of other parameters, or a state is
/// missing or does not fit. Nothing has changed then.
void load(const Optimizer& optimizer, const NamedParameters& parameters, const std::filesystem::path& file,
          std::source_location where = std::source_location::current());

}  // namespace espalier::optim
