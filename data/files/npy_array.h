// Arrays in NumPy's format, in a file or in an archive.
#pragma once
#include <string>

#include "espalier/core/tensor.h"
#include "espalier/data/files/byte_source.h"
#include "espalier/data/small_integers.h"

namespace espalier::data {

/// The array that is all of the source, row-major. Throws FileError.
Tensor read_npy_array(ByteSource& source, SmallIntegers small);

/// NumPy's name of the dtype, such as "<f4". Throws TypeError, naming `call`, for bfloat16.
std::string npy_descr(DType dtype, const char* call);

}  // namespace espalier::data
