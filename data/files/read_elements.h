// Tensors from the elements of a binary file.
#pragma once
#include "espalier/core/files/element_types.h"
#include "espalier/core/tensor.h"
#include "espalier/data/files/byte_source.h"

namespace espalier::data {

/// The elements of a tensor of that shape. Throws FileError before it makes room for them if the source
/// cannot have as many bytes, and if a number is none of the dtype (u8 beyond int64). Sizes are not negative.
Tensor read_elements(ByteSource& source, const ElementType& type, const Shape& shape, bool big_endian);

/// Throws FileError: the source does not have the bytes that such elements take.
[[noreturn]] void fail_size(const ByteSource& source, const ElementType& type, const Shape& shape);

}  // namespace espalier::data
