#include "espalier/data/files/npy_array.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/data/files/npy_header.h"
#include "espalier/data/files/read_elements.h"

namespace espalier::data {

namespace {

const ElementType& npy_format(const ByteSource& source, const std::string& descr) {
  const char order = descr.empty() ? ' ' : descr[0];
  const ElementType* type = descr.empty() ? nullptr : element_type(std::string_view(descr).substr(1));
  const bool known_order = order == '<' || order == '>' || order == '=';
  const bool numpy = type && type->name.size() == 2;
  if (numpy && (known_order || (order == '|' && type->bytes == 1))) return *type;
  source.fail(fmt::format("has elements of type {:?}, which are not supported", descr));
}

/// The same elements with the axes in reverse.
Tensor with_axes_reversed(const Tensor& tensor) {
  Layout layout = tensor.layout();
  std::reverse(layout.shape.dims().begin(), layout.shape.dims().end());
  std::reverse(layout.strides.begin(), layout.strides.end());
  return Tensor(tensor.storage(), layout, tensor.dtype()).contiguous_copy();
}

}  // namespace

Tensor read_npy_array(ByteSource& source, SmallIntegers small) {
  NpyHeader header = read_npy_header(source);
  const ElementType& type = npy_format(source, header.descr);
  uint64_t bytes = 0;
  if (!bytes_of_elements(header.shape, type.bytes, bytes) || bytes != source.remaining())
    fail_size(source, type, header.shape);
  if (header.fortran_order) std::reverse(header.shape.dims().begin(), header.shape.dims().end());
  const Tensor elements = read_elements(source, type, header.shape, header.descr[0] == '>');
  if (!source.at_end()) source.fail("goes on after its array");
  return stored_as(small, header.fortran_order ? with_axes_reversed(elements) : elements);
}

std::string npy_descr(DType dtype, const char* call) {
  switch (dtype) {
    case DType::float32: return "<f4";
    case DType::float64: return "<f8";
    case DType::int32: return "<i4";
    case DType::int64: return "<i8";
    case DType::float16: return "<f2";
    case DType::int8: return "|i1";
    case DType::uint8: return "|u1";
    case DType::int16: return "<i2";
    case DType::bfloat16:
      throw TypeError(fmt::format("{}: the format has no bfloat16; write to(float32) instead", call));
    case DType::boolean: break;
  }
  return "|b1";
}

}  // namespace espalier::data
