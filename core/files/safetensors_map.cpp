#include "espalier/core/files/safetensors_map.h"

#include <cstdint>
#include <memory>

#include "espalier/core/files/mapped_file.h"
#include "espalier/core/files/safetensors_header.h"

namespace espalier {

NamedTensors map_safetensors(const std::filesystem::path& path, FileNotes* notes) {
  InputFile file(path);
  const std::vector<SafetensorsEntry> entries = read_safetensors_entries(file, notes);
  const uint64_t data_begin = file.size() - file.remaining();
  const auto mapped = std::make_shared<MappedFile>(file);
  NamedTensors tensors;
  for (const SafetensorsEntry& entry : entries) {
    char* data = mapped->at(data_begin + entry.begin);
    const bool aligned = reinterpret_cast<uintptr_t>(data) % size_of(entry.spec.dtype) == 0;
    const bool shares = entry.type->plain && aligned && entry.end > entry.begin;
    tensors.emplace_back(entry.name, shares ? mapped_tensor(mapped, data, entry.spec, MappedUse::shared)
                                            : convert_safetensors_entry(file, entry, data));
  }
  return tensors;
}

}  // namespace espalier
