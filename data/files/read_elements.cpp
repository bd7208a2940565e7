#include "espalier/data/files/read_elements.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace espalier::data {

namespace {

void swap_element_bytes(char* at, int64_t count, size_t bytes) {
  for (int64_t i = 0; i < count; ++i, at += bytes) std::reverse(at, at + bytes);
}

}  // namespace

void fail_size(const ByteSource& source, const ElementType& type, const Shape& shape) {
  source.fail(fmt::format("has {} bytes of elements, which is not what its shape {} of type {} takes",
                          source.remaining(), shape.str(), type.name));
}

Tensor read_elements(ByteSource& source, const ElementType& type, const Shape& shape, bool big_endian) {
  uint64_t bytes = 0, converted = 0;
  if (!bytes_of_elements(shape, type.bytes, bytes) ||
      !bytes_of_elements(shape, size_of(type.dtype), converted) || bytes > source.remaining())
    fail_size(source, type, shape);
  Tensor result(shape, type.dtype);
  char* to = static_cast<char*>(result.address());
  if (type.plain) {
    if (bytes) source.read(to, static_cast<size_t>(bytes));
    if (big_endian) swap_element_bytes(to, result.elements(), type.bytes);
    return result;
  }
  constexpr int64_t piece = 8192;
  std::vector<char> raw(static_cast<size_t>(std::min(piece, result.elements())) * type.bytes);
  for (int64_t done = 0; done < result.elements(); done += piece) {
    const int64_t count = std::min(piece, result.elements() - done);
    source.read(raw.data(), static_cast<size_t>(count) * type.bytes);
    if (big_endian) swap_element_bytes(raw.data(), count, type.bytes);
    const int64_t good =
        type.convert(raw.data(), to + static_cast<size_t>(done) * size_of(type.dtype), count);
    if (good < count)
      source.fail(fmt::format("has a number that {} cannot hold: element {} of type {}", name(type.dtype),
                              done + good, type.name));
  }
  return result;
}

}  // namespace espalier::data
