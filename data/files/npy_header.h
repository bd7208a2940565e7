// The header of NumPy's format: a Python dict literal with the keys 'descr', 'fortran_order' and 'shape'.
// NEP 1.
#pragma once
#include <string>

#include "espalier/core/shape.h"
#include "espalier/data/files/byte_source.h"

namespace espalier::data {

struct NpyHeader {
  std::string descr;  ///< byte order, kind and size of an element, such as "<f4"
  bool fortran_order = false;
  Shape shape;
};

inline constexpr size_t most_npy_axes = 64;  // as many as NumPy has

/// Reads magic, version and header. Throws FileError; sizes are not negative.
NpyHeader read_npy_header(ByteSource& source);

/// All that stands before the elements. Throws ShapeError for more axes than the format has.
std::string npy_header(const std::string& descr, const Shape& shape);

}  // namespace espalier::data
