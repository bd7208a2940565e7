#include "espalier/data/idx.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/data/files/read_elements.h"
#include "espalier/data/files/zlib_source.h"

namespace espalier::data {

namespace {

constexpr std::pair<unsigned char, const char*> idx_types[] = {{0x08, "u1"}, {0x09, "i1"}, {0x0b, "i2"},
                                                               {0x0c, "i4"}, {0x0d, "f4"}, {0x0e, "f8"}};

const ElementType& idx_format(const ByteSource& source, unsigned char type) {
  for (const auto& [code, name] : idx_types)
    if (code == type) return *element_type(name);
  source.fail(fmt::format("has elements of type {:#04x}, which the IDX format does not have", type));
}

Tensor parse_idx(ByteSource& source) {
  unsigned char start[4] = {};
  if (source.remaining() < sizeof(start)) source.fail("is too short for an IDX file");
  source.read(start, sizeof(start));
  if (start[0] != 0 || start[1] != 0) source.fail("is not an IDX file: its first two bytes are not 0");
  const ElementType& elements = idx_format(source, start[2]);
  if (source.remaining() < 4u * start[3])
    source.fail(fmt::format("is cut off: its header says it has {} axes", start[3]));
  Shape shape;
  for (int axis = 0; axis < start[3]; ++axis) {
    unsigned char size[4];
    source.read(size, sizeof(size));
    if (size[0] >= 0x80)
      source.fail(fmt::format(
          "has the size {:#x} of axis {}, which is negative",
          uint32_t{size[0]} << 24 | uint32_t{size[1]} << 16 | uint32_t{size[2]} << 8 | size[3], axis));
    shape.dims().push_back(int64_t{size[0]} << 24 | int64_t{size[1]} << 16 | int64_t{size[2]} << 8 | size[3]);
  }
  Tensor result = read_elements(source, elements, shape, true);
  if (!source.at_end())
    source.fail(
        fmt::format("goes on after the elements of its shape {} of type {}", shape.str(), elements.name));
  return result;
}

void put_big_endian(std::string& to, uint64_t value, size_t bytes) {
  for (size_t i = bytes; i-- > 0;) to.push_back(static_cast<char>(value >> (8 * i)));
}

unsigned char idx_type_of(DType dtype) {
  switch (dtype) {
    case DType::boolean:
    case DType::uint8: return 0x08;
    case DType::int8: return 0x09;
    case DType::int16: return 0x0b;
    case DType::int32: return 0x0c;
    case DType::float32: return 0x0d;
    case DType::float64: return 0x0e;
    default: throw TypeError(fmt::format("write_idx: the format has no {}", name(dtype)));
  }
}

}  // namespace

Tensor read_idx(const std::filesystem::path& path, const IdxReadOptions& options,
                std::source_location where) {
  return located(where, [&] {
    InputFile file(path);
    unsigned char start[2] = {};
    if (file.size() >= sizeof(start)) file.read(start, sizeof(start));
    file.seek(0);
    std::unique_ptr<ByteSource> source;
    if (start[0] == 0x1f && start[1] == 0x8b)
      source = std::make_unique<ZlibSource>(file, path.string(), file.size(), ZlibSource::Wrapping::gzip);
    else
      source = std::make_unique<FileSource>(file);
    return stored_as(options.small_integers, parse_idx(*source));
  });
}

void write_idx(const std::filesystem::path& path, const Tensor& tensor, std::source_location where) {
  located(where, [&] {
    if (!tensor.defined()) throw TypeError("write_idx: the tensor is undefined");
    std::string header{'\0', '\0', static_cast<char>(idx_type_of(tensor.dtype()))};
    if (tensor.rank() > 255)
      throw ShapeError(fmt::format("write_idx: the shape {} has more than 255 axes", tensor.shape().str()));
    header.push_back(static_cast<char>(tensor.rank()));
    for (const int64_t size : tensor.shape()) {
      if (size > INT32_MAX)
        throw ShapeError(
            fmt::format("write_idx: a size of the shape {} does not fit 32 bits", tensor.shape().str()));
      put_big_endian(header, static_cast<uint64_t>(size), 4);
    }
    const Tensor plain = tensor.to(cpu()).contiguous_copy();
    const size_t width = size_of(plain.dtype());
    std::string bytes(plain.bytes(), '\0');
    const char* from = static_cast<const char*>(plain.address());
    for (size_t at = 0; at < bytes.size(); at += width)
      std::reverse_copy(from + at, from + at + width, bytes.data() + at);
    AtomicFile file(path);
    file.write(header);
    if (!bytes.empty()) file.write(bytes);
    file.commit();
  });
}

}  // namespace espalier::data
