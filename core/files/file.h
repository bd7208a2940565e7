// Whole files, read with their size known and written so that a reader never meets half of one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace espalier {

/// A regular file, read in order from its start or from a position. Every failure is a FileError naming the
/// file and the reason.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Of the open file, which stays this object's.
  int descriptor() const { return descriptor_; }
  /// Bytes in the file when it was opened. Hold what a header says against it before making room for
  /// anything.
  uint64_t size() const { return size_; }
  uint64_t remaining() const { return size_ - position_; }
  /// The next `bytes` bytes. Throws when the file ends before them.
  void read(void* to, size_t bytes);
  /// The next byte that is read is that one, counted from 0 and at most `size()`.
  void seek(uint64_t position);
  /// Throws FileError: `reason`, after the file's name.
  [[noreturn]] void fail(const std::string& reason) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
  uint64_t position_ = 0;
};

/// All bytes of a file. Throws FileError.
std::string read_file(const std::filesystem::path& path);

/// Where files lie that can always be made again: the folder of the Defaults, else $ESPALIER_CACHE_DIR, else
/// $XDG_CACHE_HOME/espalier, else
/// ~/.cache/espalier. Empty if there is no such folder, or if ESPALIER_CACHE is "off".
std::filesystem::path cache_folder();

/// Writes beside `path` and puts the result in its place by `commit()`: until then, and after any failure,
/// what was at `path` before is still there. Every failure is a FileError naming the file and the system's
/// reason.
class AtomicFile {
 public:
  /// `path` names a file that may exist, in a folder that does.
  explicit AtomicFile(const std::filesystem::path& path);
  /// Leaves nothing behind, unless it was committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends. There is no buffer here: hand over large pieces.
  void write(const void* from, size_t bytes);
  void write(const std::string& text) { write(text.data(), text.size()); }
  /// The file is complete: it reaches the disk and takes its place.
  void commit();

 private:
  [[noreturn]] void fail(const char* doing) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

}  // namespace espalier
