#include "espalier/nn/onnx/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"

namespace espalier::onnx {

namespace {

static_assert(std::endian::native == std::endian::little, "files hold elements in this order");

struct TypeRow {
  int32_t type;
  const char* text;
  std::optional<DType> dtype;
};
constexpr TypeRow types[] = {
    {1, "FLOAT", DType::float32},
    {2, "UINT8", DType::uint8},
    {3, "INT8", DType::int8},
    {4, "UINT16", {}},
    {5, "INT16", DType::int16},
    {6, "INT32", DType::int32},
    {7, "INT64", DType::int64},
    {8, "STRING", {}},
    {9, "BOOL", DType::boolean},
    {10, "FLOAT16", DType::float16},
    {11, "DOUBLE", DType::float64},
    {12, "UINT32", {}},
    {13, "UINT64", {}},
    {14, "COMPLEX64", {}},
    {15, "COMPLEX128", {}},
    {16, "BFLOAT16", DType::bfloat16},
    {17, "FLOAT8E4M3FN", {}},
    {18, "FLOAT8E4M3FNUZ", {}},
    {19, "FLOAT8E5M2", {}},
    {20, "FLOAT8E5M2FNUZ", {}},
    {21, "UINT4", {}},
    {22, "INT4", {}},
    {23, "FLOAT4E2M1", {}},
    {24, "FLOAT8E8M0", {}},
    {25, "UINT2", {}},
    {26, "INT2", {}},
};

[[noreturn]] void fail(const pb::TensorProto& proto, const std::string& reason) {
  throw FileError(fmt::format("tensor '{}': {}", proto.name(), reason));
}

Shape shape_of(const pb::TensorProto& proto) {
  Dims dims;
  double elements = 1;
  for (const int64_t size : proto.dims()) {
    if (size < 0) fail(proto, fmt::format("it has an axis of size {}", size));
    elements *= static_cast<double>(size);
    dims.push_back(size);
  }
  if (elements > 1e15 || dims.size() > 64) fail(proto, "its shape is out of range");
  return Shape(dims);
}

uint64_t number_in(const pb::TensorProto& proto, const std::string& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    fail(proto, fmt::format("'{}' is no position in a file", text));
  return number;
}

bool is_below(const std::filesystem::path& file, const std::filesystem::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first == folder.end();
}

/// The file that a tensor names, without links.
std::filesystem::path external_file(const pb::TensorProto& proto, const std::filesystem::path& model,
                                    const std::string& location) {
  const std::filesystem::path relative(location);
  if (location.empty() || relative.is_absolute() || location.find('\0') != location.npos)
    fail(proto, fmt::format("'{}' is no file beside the model", location));
  std::error_code error;
  const auto folder =
      std::filesystem::weakly_canonical(std::filesystem::absolute(model).parent_path(), error);
  if (error) fail(proto, fmt::format("'{}' cannot be read: {}", location, error.message()));
  const auto file = std::filesystem::canonical(folder / relative, error);
  if (error) fail(proto, fmt::format("'{}' cannot be read: {}", location, error.message()));
  const auto real_folder = std::filesystem::canonical(model, error).parent_path();
  const bool stays = std::ranges::find(relative, "..") == relative.end();
  if (!stays || !(is_below(file, folder) || (!error && is_below(file, real_folder))))
    fail(proto, fmt::format("'{}' is outside of the folder of the model", location));
  return file;
}

/// Elements that lie in a file of their own, as long as the shape needs: memory is made for them after that.
Tensor read_external(const pb::TensorProto& proto, const std::filesystem::path& model, const Shape& shape,
                     DType dtype) {
  const uint64_t bytes = static_cast<uint64_t>(shape.elements()) * size_of(dtype);
  std::string location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") offset = number_in(proto, entry.value());
    if (entry.key() == "length") length = number_in(proto, entry.value());
  }
  if (length && *length != bytes)
    fail(proto, fmt::format("it has {} bytes in '{}', and its shape {} needs {}", *length, location,
                            shape.str(), bytes));
  InputFile file(external_file(proto, model, location));
  if (offset > file.size() || file.size() - offset < bytes)
    fail(proto, fmt::format("'{}' ends before its elements do", location));
  Tensor tensor(shape, dtype);
  file.seek(offset);
  file.read(tensor.address(), tensor.bytes());
  return tensor;
}

template <class T, class Field>
void copy_numbers(const pb::TensorProto& proto, const Field& field, Tensor& tensor) {
  if (field.size() != tensor.elements())
    fail(proto, fmt::format("it has {} elements, and its shape is {}", field.size(), tensor.shape().str()));
  T* out = static_cast<T*>(tensor.address());
  for (const auto& number : field) *out++ = static_cast<T>(number);
}

void copy_fields(const pb::TensorProto& proto, Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::float32: return copy_numbers<float>(proto, proto.float_data(), tensor);
    case DType::float64: return copy_numbers<double>(proto, proto.double_data(), tensor);
    case DType::int64: return copy_numbers<int64_t>(proto, proto.int64_data(), tensor);
    case DType::int32: return copy_numbers<int32_t>(proto, proto.int32_data(), tensor);
    case DType::boolean: return copy_numbers<bool>(proto, proto.int32_data(), tensor);
    case DType::float16:
    case DType::bfloat16:
    case DType::int16: return copy_numbers<uint16_t>(proto, proto.int32_data(), tensor);
    case DType::int8:
    case DType::uint8: return copy_numbers<uint8_t>(proto, proto.int32_data(), tensor);
  }
}

/// A bool is 0 or 1, whatever byte the file has.
Tensor as_booleans(Tensor tensor) {
  if (tensor.dtype() != DType::boolean) return tensor;
  auto* flags = static_cast<unsigned char*>(tensor.address());
  for (size_t i = 0; i < tensor.bytes(); ++i) flags[i] = flags[i] != 0;
  return tensor;
}

/// How many bytes of elements the message has, for the check before memory is made.
size_t bytes_inside(const pb::TensorProto& proto, DType dtype) {
  if (proto.has_raw_data()) return proto.raw_data().size();
  const int numbers = dtype == DType::float32   ? proto.float_data_size()
                      : dtype == DType::float64 ? proto.double_data_size()
                      : dtype == DType::int64   ? proto.int64_data_size()
                                                : proto.int32_data_size();
  return static_cast<size_t>(numbers) * size_of(dtype);
}

}  // namespace

std::string type_text(int32_t type) {
  for (const TypeRow& row : types)
    if (row.type == type) return row.text;
  return fmt::format("number {}", type);
}

std::optional<DType> dtype_of_file(int32_t type) {
  for (const TypeRow& row : types)
    if (row.type == type) return row.dtype;
  return std::nullopt;
}

DType need_dtype(int32_t type, const std::string& what) {
  if (const auto dtype = dtype_of_file(type)) return *dtype;
  throw UnsupportedError(
      fmt::format("{} has the element type {}, which Espalier does not have", what, type_text(type)));
}

int32_t type_in_file(DType dtype) {
  for (const TypeRow& row : types)
    if (row.dtype == dtype) return row.type;
  throw TypeError(fmt::format("ONNX has no element type {}", name(dtype)));
}

Tensor read_tensor(const pb::TensorProto& proto, const std::filesystem::path& model) {
  const DType dtype = need_dtype(proto.data_type(), fmt::format("tensor '{}'", proto.name()));
  const Shape shape = shape_of(proto);
  if (proto.has_segment()) fail(proto, "it is one of several segments");
  const size_t bytes = static_cast<size_t>(shape.elements()) * size_of(dtype);
  if (proto.data_location() == pb::TensorProto::EXTERNAL)
    return as_booleans(read_external(proto, model, shape, dtype));
  if (bytes_inside(proto, dtype) != bytes)
    fail(proto, fmt::format("it has {} bytes, and its shape {} needs {}", bytes_inside(proto, dtype),
                            shape.str(), bytes));
  Tensor tensor(shape, dtype);
  if (!proto.has_raw_data())
    copy_fields(proto, tensor);
  else if (bytes)
    std::memcpy(tensor.address(), proto.raw_data().data(), bytes);
  return as_booleans(tensor);
}

void write_tensor(const Tensor& tensor, const std::string& name, pb::TensorProto& proto) {
  const Tensor plain = tensor.to(cpu()).contiguous_copy();
  proto.set_name(name);
  proto.set_data_type(type_in_file(plain.dtype()));
  for (const int64_t size : plain.shape()) proto.add_dims(size);
  proto.set_raw_data(plain.bytes() ? plain.address() : "", plain.bytes());
}

}  // namespace espalier::onnx
