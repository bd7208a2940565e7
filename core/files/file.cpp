#include "espalier/core/files/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

#include "espalier/core/defaults.h"
#include "espalier/core/error.h"

namespace espalier {

namespace {

std::string system_reason() { return std::generic_category().message(errno); }

constexpr size_t largest_transfer = size_t{1} << 30;  // Linux moves no more than 2 GiB in one call

/// An absolute folder that an environment variable names.
std::filesystem::path folder_in(const char* variable) {
  const char* value = std::getenv(variable);
  std::filesystem::path path = value ? value : "";
  return path.is_absolute() ? path : std::filesystem::path();
}

}  // namespace

std::filesystem::path cache_folder() {
  if (auto chosen = defaults().cache) return *std::move(chosen);
  const char* cache = std::getenv("ESPALIER_CACHE");
  if (cache && std::string_view(cache) == "off") return {};
  std::filesystem::path folder = folder_in("ESPALIER_CACHE_DIR");
  if (folder.empty())
    if (const auto caches = folder_in("XDG_CACHE_HOME"); !caches.empty()) folder = caches / "espalier";
  if (folder.empty())
    if (const auto home = folder_in("HOME"); !home.empty()) folder = home / ".cache" / "espalier";
  return folder;
}

InputFile::InputFile(const std::filesystem::path& path) : path_(path) {
  if (path.empty()) throw FileError("an empty path cannot be opened");
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail(fmt::format("cannot be opened: {}", system_reason()));
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    const std::string reason = known ? "is not a regular file" : "cannot be opened: " + system_reason();
    ::close(descriptor_);
    fail(reason);
  }
  size_ = static_cast<uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(void* to, size_t bytes) {
  char* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::read(descriptor_, at, std::min(bytes, largest_transfer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(fmt::format("cannot be read: {}", system_reason()));
    if (got == 0) fail(fmt::format("ends at byte {}, {} bytes too early", position_, bytes));
    at += got;
    bytes -= static_cast<size_t>(got);
    position_ += static_cast<uint64_t>(got);
  }
}

void InputFile::seek(uint64_t position) {
  if (position > size_) fail(fmt::format("has no byte {}: its size is {} bytes", position, size_));
  if (::lseek(descriptor_, static_cast<off_t>(position), SEEK_SET) < 0)
    fail(fmt::format("cannot be read: {}", system_reason()));
  position_ = position;
}

void InputFile::fail(const std::string& reason) const {
  throw FileError(fmt::format("{} {}", path_.string(), reason));
}

std::string read_file(const std::filesystem::path& path) {
  InputFile file(path);
  std::string text(file.size(), '\0');
  file.read(text.data(), text.size());
  return text;
}

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path) {
  static std::atomic<unsigned> made{0};
  if (path.empty()) throw FileError("an empty path cannot be written");
  std::error_code ignored;
  // The target of a symbolic link is replaced, or made, not the link. As many links as the system follows.
  for (int links = 0; links < 40 && std::filesystem::is_symlink(path_, ignored); ++links)
    path_ = path_.parent_path() / std::filesystem::read_symlink(path_, ignored);
  if (std::filesystem::is_symlink(path_, ignored))
    throw FileError(fmt::format("{} cannot be written: its symbolic links do not end", path.string()));
  struct stat before {};
  const bool exists = ::stat(path_.c_str(), &before) == 0;
  if (exists && !S_ISREG(before.st_mode))
    throw FileError(fmt::format("{} cannot be written: it is not a regular file", path_.string()));

  do {
    temporary_ = path_;
    temporary_ += fmt::format(".{}-{}.tmp", ::getpid(), made++);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) fail("created");
  if (exists) (void)::fchmod(descriptor_, before.st_mode & 0777);  // access rights stay
}

AtomicFile::~AtomicFile() {
  if (temporary_.empty()) return;
  if (descriptor_ >= 0) ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* from, size_t bytes) {
  const char* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t put = ::write(descriptor_, at, std::min(bytes, largest_transfer));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("written");
    at += put;
    bytes -= static_cast<size_t>(put);
  }
}

void AtomicFile::commit() {
  // A rename may reach the disk before the bytes do, unless they are sent first. Some file systems cannot
  // sync.
  if (::fsync(descriptor_) != 0 && errno != EINVAL && errno != ENOTSUP) fail("written");
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("written");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("replaced");
  temporary_.clear();
}

void AtomicFile::fail(const char* doing) const {
  throw FileError(fmt::format("{} cannot be {}: {}", path_.string(), doing, system_reason()));
}

}  // namespace espalier
