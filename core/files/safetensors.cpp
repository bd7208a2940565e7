#include "espalier/core/files/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/core/files/safetensors_header.h"

namespace espalier {

namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::pair<DType, std::string_view> dtype_names[] = {
    {float32, "F32"}, {float64, "F64"},   {int32, "I32"}, {int64, "I64"}, {boolean, "BOOL"},
    {float16, "F16"}, {bfloat16, "BF16"}, {int8, "I8"},   {uint8, "U8"},  {int16, "I16"}};

Tensor read_tensor(InputFile& file, const SafetensorsEntry& entry) {
  if (entry.type->plain) {
    Tensor tensor(entry.spec.shape, entry.spec.dtype);
    file.read(tensor.address(), tensor.bytes());
    return tensor;
  }
  std::string bytes(static_cast<size_t>(entry.end - entry.begin), '\0');
  file.read(bytes.data(), bytes.size());
  return convert_safetensors_entry(file, entry, bytes.data());
}

std::string_view name_of(DType dtype) {
  for (const auto& [known, name] : dtype_names)
    if (known == dtype) return name;
  return {};
}

/// The header, padded so that the data after it is aligned.
std::string header_of(const std::vector<const std::pair<std::string, Tensor>*>& tensors,
                      const FileNotes& notes) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!notes.empty()) header[safetensors_notes] = notes;
  uint64_t offset = 0;
  for (const auto* named : tensors) {
    const Tensor& tensor = named->second;
    const uint64_t end = offset + tensor.bytes();
    header[named->first] = {{"dtype", name_of(tensor.dtype())},
                            {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
                            {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

Tensor convert_safetensors_entry(const InputFile& file, const SafetensorsEntry& entry, const char* bytes) {
  Tensor tensor(entry.spec.shape, entry.spec.dtype);
  const int64_t count = tensor.elements();
  const int64_t good = entry.type->convert(bytes, static_cast<char*>(tensor.address()), count);
  if (good < count)
    file.fail(fmt::format("has a tensor '{}' with a number that {} cannot hold: element {} of type {}",
                          entry.name, name(entry.spec.dtype), good, entry.type->name));
  return tensor;
}

NamedTensors read_safetensors(const std::filesystem::path& path, FileNotes* notes,
                              std::source_location where) {
  return located(where, [&] {
    InputFile file(path);
    NamedTensors tensors;
    for (SafetensorsEntry& entry : read_safetensors_entries(file, notes)) {
      Tensor tensor = read_tensor(file, entry);
      tensors.emplace_back(std::move(entry.name), std::move(tensor));
    }
    return tensors;
  });
}

void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors, const FileNotes& notes,
                       std::source_location where) {
  located(where, [&] {
    std::set<std::string_view> names{safetensors_notes};
    std::vector<const std::pair<std::string, Tensor>*> order;
    for (const auto& named : tensors) {
      if (!names.insert(named.first).second)
        throw FileError(fmt::format("{} cannot hold two tensors named '{}'", path.string(), named.first));
      if (!named.second.defined())
        throw FileError(fmt::format("{} cannot hold '{}': it is undefined", path.string(), named.first));
      order.push_back(&named);
    }
    // Larger elements first: then each is aligned in a mapped file.
    std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
      return size_of(a->second.dtype()) > size_of(b->second.dtype());
    });
    std::string header;
    try {
      header = header_of(order, notes);
    } catch (const nlohmann::json::exception& error) {
      throw FileError(fmt::format("{} cannot be written: {}", path.string(), error.what()));
    }
    AtomicFile file(path);
    const uint64_t length = header.size();
    file.write(&length, sizeof length);
    file.write(header);
    for (const auto* named : order) {
      const Tensor host = named->second.to(cpu()).contiguous_copy();
      file.write(host.address(), host.bytes());
    }
    file.commit();
  });
}

}  // namespace espalier
