#include "espalier/core/files/mapped_file.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "espalier/core/storage.h"

namespace espalier {

MappedFile::MappedFile(const InputFile& file) : bytes_(static_cast<size_t>(file.size())) {
  address_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.descriptor(), 0);
  if (address_ == MAP_FAILED)
    file.fail(fmt::format("cannot be mapped: {}", std::generic_category().message(errno)));
}

MappedFile::~MappedFile() { ::munmap(address_, bytes_); }

namespace {

struct MappedStorage : Storage {
  std::shared_ptr<MappedFile> file;
};

}  // namespace

Tensor mapped_tensor(std::shared_ptr<MappedFile> file, char* data, const Spec& spec, MappedUse use) {
  auto storage = std::make_unique<MappedStorage>();
  storage->data = data;
  storage->bytes = static_cast<size_t>(spec.shape.elements()) * size_of(spec.dtype);
  storage->foreign = use == MappedUse::shared;
  storage->file = std::move(file);
  storage->release = [](Storage* base) { delete static_cast<MappedStorage*>(base); };
  return Tensor(StoragePtr(storage.release()), Layout(spec.shape), spec.dtype);
}

}  // namespace espalier
