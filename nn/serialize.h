// Parameters and buffers to a file and back, as safetensors: names are paths ("hidden.weight"), layouts are
// PyTorch's.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "espalier/nn/module.h"

namespace espalier::nn {

/// Writes all parameters and buffers, each once (see Module::parameters). A file that was there is replaced
/// only when the new one is complete. Throws FileError, or Error if a layer has not learned its shape yet.
void save(const Module& module, const std::filesystem::path& file,
          std::source_location where = Module::Where::current());

struct LoadOptions {
  /// Everything in the module must be in the file, and the other way round; but a file may lack the
  /// `num_batches_tracked` of normalizations, as PyTorch's older ones do.
  bool strict = true;
  /// Only tensors whose names begin with it are read, by what follows: with "backbone." the file's
  /// "backbone.conv.weight" is the module's "conv.weight".
  std::string prefix = {};
  /// Reals of the file become those of the parameters and buffers, rounded, and float32 in layers that have
  /// not been called yet; a float16 or bfloat16 file thus fits a float32 module. Integers stay as they are.
  bool convert = false;
};

/// Names as they are, or would be, in the file.
struct LoadReport {
  std::vector<std::string> missing;     ///< in the module, not in the file: these have kept their values
  std::vector<std::string> unexpected;  ///< in the file behind the prefix, not in the module
};

/// Gives every parameter and buffer the value it has in the file, also in layers that have not been called
/// yet. A scope (nn::Parameters) keeps what the file has at paths that are not written in it yet: a layer or
/// parameter written there later has these values, and throws FileError if shapes or dtypes do not fit.
/// Throws FileError naming what does not fit: another shape or (without `convert`) dtype, or if it is strict
/// something missing or unexpected, or for a scope a prefix that no tensor has. Nothing has changed then.
LoadReport load(const Module& module, const std::filesystem::path& file, const LoadOptions& options = {},
                std::source_location where = Module::Where::current());

}  // namespace espalier::nn
