// Arrays in NumPy's format, .npy.
#pragma once
#include <filesystem>
#include <source_location>

#include "espalier/core/tensor.h"
#include "espalier/data/small_integers.h"

namespace espalier::data {

struct NpyReadOptions {
  SmallIntegers small_integers = SmallIntegers::widen;
};

/// The array of a .npy file, row-major whatever order the file has. Numbers may be big-endian. Reals, int32,
/// int64 and bool keep their type; integers of 8 and 16 bits become int32, uint32 and uint64 become int64:
/// all exactly. With `small_integers` kept, int8, uint8 and int16 keep their type as well. Throws FileError
/// for other types, a uint64 beyond int64, and incomplete or other files.
Tensor read_npy(const std::filesystem::path& path, const NpyReadOptions& options = {},
                std::source_location where = std::source_location::current());

/// Writes a tensor of any shape. An existing file is replaced only when the new one is complete. Throws
/// FileError, and TypeError for bfloat16, which the format does not have.
void write_npy(const std::filesystem::path& path, const Tensor& tensor,
               std::source_location where = std::source_location::current());

}  // namespace espalier::data
