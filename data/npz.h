// Several named arrays in one file, .npz.
#pragma once
#include <filesystem>
#include <source_location>

#include "espalier/core/files/safetensors.h"
#include "espalier/core/tensor.h"
#include "espalier/data/npy.h"

namespace espalier::data {

struct NpzOptions {
  /// Pack the arrays by DEFLATE, as `numpy.savez_compressed` does.
  bool compress = false;
};

/// All arrays of a .npz file under their names, in the order of the archive: what `numpy.savez` and
/// `savez_compressed` write. Types become those of `read_npy`. Throws FileError naming the file, the array
/// and what is wrong with it, and UnsupportedError without zlib.
NamedTensors read_npz(const std::filesystem::path& path, const NpyReadOptions& options = {},
                      std::source_location where = std::source_location::current());

/// Writes tensors of any shapes. An existing file is replaced only when the new one is complete. Throws
/// FileError, also if a name comes twice, TypeError for bfloat16, and UnsupportedError without zlib.
void write_npz(const std::filesystem::path& path, const NamedTensors& tensors, const NpzOptions& options = {},
               std::source_location where = std::source_location::current());

}  // namespace espalier::data
