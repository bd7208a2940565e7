// Parameters to a file and back, as safetensors: names are paths ("hidden.weight"), layouts are PyTorch's.
#pragma once
#include <filesystem>

#include "espalier/nn/module.h"

namespace espalier::nn {

/// Writes all parameters, each once (see Module::parameters). A file that was there is replaced only when the
/// new one is complete. Throws FileError, or Error if a layer has not learned its shape yet.
void save(const Module& module, const std::filesystem::path& file,
          std::source_location where = Module::Where::current());

/// Gives every parameter the value it has in the file, also in layers that have not been called yet.
/// Throws FileError naming what does not fit: a parameter that is missing or has another shape or dtype, or a
/// tensor that is not in the module. Nothing has changed then.
void load(const Module& module, const std::filesystem::path& file,
          std::source_location where = Module::Where::current());

}  // namespace espalier::nn
