// Arrays in the IDX format, in which MNIST and its relatives come. http://yann.lecun.com/exdb/mnist
#pragma once
#include <filesystem>
#include <source_location>

#include "espalier/core/tensor.h"
#include "espalier/data/small_integers.h"

namespace espalier::data {

struct IdxReadOptions {
  SmallIntegers small_integers = SmallIntegers::widen;
};

/// The array of an IDX file, plain or packed by gzip. Bytes and 16-bit integers become int32, unless
/// `small_integers` are kept; 32-bit integers and reals keep their type. Throws FileError naming the file and
/// what is wrong with it, and UnsupportedError for packed files without zlib.
Tensor read_idx(const std::filesystem::path& path, const IdxReadOptions& options = {},
                std::source_location where = std::source_location::current());

/// Writes an int8, uint8, int16, int32, float32 or float64 tensor, or a boolean one as bytes. An existing
/// file is replaced only when the new one is complete. Throws FileError, TypeError for other types, and
/// ShapeError if a size does not fit 32 bits or there are more than 255 axes.
void write_idx(const std::filesystem::path& path, const Tensor& tensor,
               std::source_location where = std::source_location::current());

}  // namespace espalier::data
