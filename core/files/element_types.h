// Elements as files have them: other types than those of tensors, and other orders of bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "espalier/core/dtype.h"
#include "espalier/core/shape.h"

namespace espalier {

/// A type of elements in files.
struct ElementType {
  /// As NumPy calls it, without the order of bytes: f2, f4, f8, i1, i2, i4, i8, u1, u2, u4, u8 and b1; in
  /// addition bf2, and e4m3 and e5m2, the reals of 8 bits. (Micikevicius et al., FP8 formats for deep
  /// learning, 2022.)
  std::string_view name;
  size_t bytes = 0;
  DType dtype = DType::float32;  ///< of the tensor they become: the narrowest that has all their values
  bool plain = false;            ///< elements of the tensor are those of the file
  /// Converts elements of this machine's byte order. Returns how many are values of the dtype, from the first
  /// on.
  int64_t (*convert)(const char* from, char* to, int64_t count) = nullptr;
};

/// The type of that name, or null.
const ElementType* element_type(std::string_view name);

/// The bytes that elements of that shape take. Returns false if 64 bits cannot count them, also where a size
/// of zero hides it. Sizes are not negative.
bool bytes_of_elements(const Shape& shape, size_t element, uint64_t& bytes);

}  // namespace espalier
