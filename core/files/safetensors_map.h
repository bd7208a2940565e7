// Safetensors files as memory, without reading them first.
#pragma once
#include <filesystem>

#include "espalier/core/files/safetensors.h"

namespace espalier {

/// As read_safetensors, but tensors whose elements lie in the file as they do in memory share pages of the
/// file: what is not used is not read, and processes that map the same file share its memory. Writing to such
/// a tensor changes this process's copy of the page, never the file. A tensor of another type, or that is not
/// aligned in the file, is a copy. The file must not be cut while the tensors are there; replacing it by
/// another is safe. Throws FileError.
NamedTensors map_safetensors(const std::filesystem::path& file, FileNotes* notes = nullptr);

}  // namespace espalier
