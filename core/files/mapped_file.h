// The pages of a file as memory, and tensors in them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "espalier/core/files/file.h"
#include "espalier/core/tensor.h"

namespace espalier {

/// The pages of a file, until the last owner goes. Writing changes this process's copy of a page, never the
/// file. The file must not be cut meanwhile; replacing it by another is safe.
class MappedFile {
 public:
  /// Maps the whole of a file that is not empty. Throws FileError.
  explicit MappedFile(const InputFile& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  char* at(uint64_t offset) const { return static_cast<char*>(address_) + offset; }

 private:
  void* address_ = nullptr;
  size_t bytes_ = 0;
};

/// Whether a plan that has such a tensor as a leaf may write to its pages.
enum class MappedUse : uint8_t {
  shared,  ///< no operation and no plan writes there
  owned,   ///< it is the only tensor there, and as good as memory of its own
};

/// A contiguous tensor whose elements begin at `data`, in pages of the file and aligned to their size.
Tensor mapped_tensor(std::shared_ptr<MappedFile> file, char* data, const Spec& spec, MappedUse use);

}  // namespace espalier
