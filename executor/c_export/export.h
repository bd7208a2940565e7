// Executor::export_c: from what an executor was asked for to files.
#pragma once
#include <filesystem>

#include "espalier/executor/export_options.h"
#include "espalier/executor/training/setup.h"

namespace espalier::c_export {

/// Writes the files. The leaves have the values that they shall have there. Throws UnsupportedError for what
/// has no C code, Error for options that make no sense, FileError.
ExportedSizes export_files(const Setup& setup, const std::filesystem::path& file,
                           const ExportOptions& options);

}  // namespace espalier::c_export
