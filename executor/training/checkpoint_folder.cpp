#include "espalier/executor/training/checkpoint_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string>
#include <system_error>

#include "espalier/core/error.h"

namespace espalier {

namespace {

constexpr std::string_view prefix = "checkpoint-", suffix = ".safetensors";

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& reason) {
  throw FileError(fmt::format("the checkpoint folder {} {}", path.string(), reason));
}
std::string reason_of(int error) { return std::generic_category().message(error); }

/// The number in "checkpoint-<number>.safetensors", or -1.
int64_t number_of(std::string_view name) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix) || name.size() <= prefix.size() + suffix.size())
    return -1;
  const std::string_view digits = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  if (digits.size() > 18 || digits.find_first_not_of("0123456789") != digits.npos) return -1;
  return std::stoll(std::string(digits));
}

/// A name in a folder reaches the disk. Some file systems cannot sync.
bool synced(int folder) { return ::fsync(folder) == 0 || errno == EINVAL || errno == ENOTSUP; }

/// Makes the folder and those above it.
void make(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::create_directories(path, error)) {
    if (error) fail(path, fmt::format("cannot be made: {}", error.message()));
    return;  // it was there
  }
  const int above = ::open((path / "..").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (above < 0) return;  // one may not look into it
  (void)synced(above);
  ::close(above);
}

/// Calls `f` with the name of each file.
template <class F>
void for_each_name(const std::filesystem::path& folder, F&& f) {
  std::error_code error;
  std::filesystem::directory_iterator at(folder, error), end;
  for (; !error && at != end; at.increment(error)) f(at->path().filename().string());
  if (error) fail(folder, fmt::format("cannot be listed: {}", error.message()));
}

}  // namespace

CheckpointFolder::CheckpointFolder(const std::filesystem::path& path, Access access) : path_(path) {
  if (access == Access::write) make(path);
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0) fail(path, fmt::format("cannot be opened: {}", reason_of(errno)));
  // Where a file system knows no locks, no other process should use the folder.
  while (::flock(descriptor_, access == Access::write ? LOCK_EX : LOCK_SH) != 0 && errno == EINTR) {
  }
}

CheckpointFolder::~CheckpointFolder() { ::close(descriptor_); }

std::vector<int64_t> CheckpointFolder::numbers() const {
  std::vector<int64_t> numbers;
  for_each_name(path_, [&](const std::string& name) {
    const int64_t number = number_of(name);
    if (number >= 0 && file(number).filename() == name) numbers.push_back(number);
  });
  std::sort(numbers.begin(), numbers.end(), std::greater<>());
  return numbers;
}

std::filesystem::path CheckpointFolder::file(int64_t number) const {
  return path_ / fmt::format("{}{:06}{}", prefix, number, suffix);
}

void CheckpointFolder::remove_leftovers() const {
  std::vector<std::string> leftovers;
  for_each_name(path_, [&](const std::string& name) {
    if (name.starts_with(prefix) && name.ends_with(".tmp")) leftovers.push_back(name);
  });
  std::error_code ignored;  // leftovers do no harm
  for (const std::string& name : leftovers) std::filesystem::remove(path_ / name, ignored);
}

void CheckpointFolder::sync() const {
  if (!synced(descriptor_)) fail(path_, fmt::format("cannot be written: {}", reason_of(errno)));
}

void CheckpointFolder::remove(int64_t number) const {
  std::error_code ignored;  // the next checkpoint tries again
  std::filesystem::remove(file(number), ignored);
}

}  // namespace espalier
