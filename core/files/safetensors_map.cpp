#include "espalier/core/files/safetensors_map.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <system_error>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/core/files/safetensors_header.h"
#include "espalier/core/storage.h"

namespace espalier {

namespace {

/// The pages of a file, until the last tensor that uses them goes.
class MappedFile {
 public:
  explicit MappedFile(const InputFile& file) : bytes_(static_cast<size_t>(file.size())) {
    address_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.descriptor(), 0);
    if (address_ == MAP_FAILED)
      file.fail(fmt::format("cannot be mapped: {}", std::generic_category().message(errno)));
  }
  ~MappedFile() { ::munmap(address_, bytes_); }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  char* at(uint64_t offset) const { return static_cast<char*>(address_) + offset; }

 private:
  void* address_ = nullptr;
  size_t bytes_ = 0;
};

struct MappedStorage : Storage {
  std::shared_ptr<MappedFile> file;
};

Tensor mapped_tensor(const std::shared_ptr<MappedFile>& file, char* data, const SafetensorsEntry& entry) {
  auto storage = std::make_unique<MappedStorage>();
  storage->data = data;
  storage->bytes = static_cast<size_t>(entry.end - entry.begin);
  storage->foreign = true;
  storage->file = file;
  storage->release = [](Storage* base) { delete static_cast<MappedStorage*>(base); };
  return Tensor(StoragePtr(storage.release()), Layout(entry.spec.shape), entry.spec.dtype);
}

}  // namespace

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
    tensors.emplace_back(entry.name, shares ? mapped_tensor(mapped, data, entry)
                                            : convert_safetensors_entry(file, entry, data));
  }
  return tensors;
}

}  // namespace espalier
