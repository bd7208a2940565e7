// The bytes of a fuzzer as a file, for readers that take a path.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "espalier/core/error.h"

namespace espalier::testing {

/// The path of a file in memory with this content, until the next call.
inline std::filesystem::path fuzz_file(const uint8_t* bytes, size_t size) {
  static const int file = ::memfd_create("fuzz", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, 0) != 0) std::abort();
  for (size_t done = 0; done < size;) {
    const ssize_t put = ::pwrite(file, bytes + done, size - done, static_cast<off_t>(done));
    if (put <= 0) std::abort();
    done += static_cast<size_t>(put);
  }
  return "/proc/self/fd/" + std::to_string(file);
}

/// Runs a reader. It may throw FileError, as it says; anything else ends the fuzzer.
template <class Read>
int fuzz(const uint8_t* bytes, size_t size, const Read& read) {
  const std::filesystem::path path = fuzz_file(bytes, size);
  try {
    read(path);
  } catch (const FileError&) {
  }
  return 0;
}

}  // namespace espalier::testing
