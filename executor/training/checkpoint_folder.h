// The folder of checkpoints: numbered files, of which the last one counts.
#pragma once
#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

namespace espalier {

/// An open folder, locked against other processes and threads that use one like it. Failures are FileErrors.
class CheckpointFolder {
 public:
  enum class Access { read, write };
  CheckpointFolder(const std::filesystem::path& path, Access access);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  /// Numbers of the checkpoints, the last one first.
  std::vector<int64_t> numbers() const;
  std::filesystem::path file(int64_t number) const;
  /// Removes what writers have left that were killed.
  void remove_leftovers() const;
  /// Names of files reach the disk.
  void sync() const;
  void remove(int64_t number) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace espalier
