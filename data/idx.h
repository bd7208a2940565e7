// Arrays in the IDX format, in which MNIST and its relatives come. http://yann.lecun.com/exdb/mnist
#pragma once
#include <filesystem>
#include <source_location>

#include "espalier/core/tensor.h"

namespace espalier::data {

/// The array of an IDX file, plain or packed by gzip. Bytes and 16-bit integers become int32, as do 32-bit
/// ones; reals keep their type. Throws FileError naming the file and what is wrong with it, and
/// UnsupportedError for packed files without zlib.
Tensor read_idx(const std::filesystem::path& path,
                std::source_location where = std::source_location::current());

/// Writes an int32, float32 or float64 tensor, or a boolean one as bytes. An existing file is replaced only
/// when the new one is complete. Throws FileError, TypeError for other types, and ShapeError if a size does
/// not fit 32 bits or there are more than 255 axes.
void write_idx(const std::filesystem::path& path, const Tensor& tensor,
               std::source_location where = std::source_location::current());

}  // namespace espalier::data
