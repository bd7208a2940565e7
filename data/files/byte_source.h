// Bytes in order, from a file as they lie there or unpacked on the way.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "espalier/core/files/file.h"

namespace espalier::data {

/// What a parser of binary files reads from.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// The number of bytes that follow. For packed streams that do not say their size, an upper bound of it:
  /// none is larger than what the bytes in the file can be unpacked to. Hold it against what a header says
  /// before making room for anything.
  virtual uint64_t remaining() const = 0;
  /// The next `bytes` bytes. Throws FileError when the source ends before them.
  virtual void read(void* to, size_t bytes) = 0;
  /// Whether all has been read. Checks what follows the data in the file, such as its checksum.
  virtual bool at_end() { return remaining() == 0; }
  /// Throws FileError: `reason`, after the name of the file.
  [[noreturn]] void fail(const std::string& reason) const;

 protected:
  explicit ByteSource(std::string name) : name_(std::move(name)) {}

 private:
  std::string name_;
};

/// The rest of a file.
class FileSource : public ByteSource {
 public:
  explicit FileSource(InputFile& file) : ByteSource(file.path().string()), file_(file) {}
  uint64_t remaining() const override { return file_.remaining(); }
  void read(void* to, size_t bytes) override { file_.read(to, bytes); }

 private:
  InputFile& file_;
};

}  // namespace espalier::data
