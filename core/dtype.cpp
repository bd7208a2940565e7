#include "espalier/core/dtype.h"

#include <ostream>
#include <string>

#include "espalier/core/error.h"

namespace espalier {

std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::float32: return "float32";
    case DType::float64: return "float64";
    case DType::int32: return "int32";
    case DType::int64: return "int64";
    case DType::float16: return "float16";
    case DType::bfloat16: return "bfloat16";
    case DType::int8: return "int8";
    case DType::uint8: return "uint8";
    case DType::int16: return "int16";
    case DType::boolean: break;
  }
  return "bool";
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }

void detail::throw_no_arithmetic(DType dtype) {
  if (is_small_integer(dtype))
    throw TypeError(
        std::string(name(dtype)) +
        " is a type of data, with which nothing is computed; cast() it first, for example to float32");
  throw UnsupportedError("a kernel of the CPU was given " + std::string(name(dtype)) +
                         ", which it computes in float32");
}

}  // namespace espalier
