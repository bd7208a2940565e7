// Trees as ONNX files.
#pragma once
#include <filesystem>
#include <source_location>

#include "espalier/nn/onnx/model.h"

namespace espalier::onnx {

struct SaveOptions {
  /// The names of parameters and buffers in the file, such as Module::parameters(); others are numbered.
  NamedVariables parameters = {};
};

/// Writes the inference of a tree, in opset 20: from `inputs`, which are placeholders, columns of a feed or
/// other Variables where the file shall begin, to `outputs`. Dropout is left out, and of an in_train_phase
/// the part for inference is written. The first axis of an input from a feed has any size, named "batch"
/// where it is that of the first input, and so has an open axis. A file that was there is replaced only when
/// the new one is complete. Throws Error for a feed that is no input, and for a name given twice;
/// UnsupportedError for an operation that ONNX does not have; FileError.
void save(const std::filesystem::path& file, const NamedVariables& inputs, const NamedVariables& outputs,
          const SaveOptions& options = {}, std::source_location where = std::source_location::current());

}  // namespace espalier::onnx
