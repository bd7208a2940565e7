// What readers must do with damaged files: throw FileError, and make no room for what a header only claims.
#pragma once
#include <sys/resource.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "espalier/core/error.h"
#include "many_cases.h"
#include "temporary_folder.h"

namespace espalier::testing {

/// While it lives, the process may have so many more bytes of address space: absurd claims end in
/// std::bad_alloc or OutOfMemory where they are believed.
class MemoryLimit {
 public:
  explicit MemoryLimit(uint64_t more = uint64_t{1} << 30) {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    ::getrlimit(RLIMIT_AS, &before_);
    const rlimit limit{pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) + more, before_.rlim_max};
    ::setrlimit(RLIMIT_AS, &limit);
  }
  ~MemoryLimit() { ::setrlimit(RLIMIT_AS, &before_); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

struct MalformedFile {
  std::string bytes;
  std::vector<std::string> parts;  ///< of the message
};

using Reader = std::function<void(const std::string& bytes)>;

/// Each of the files is refused with these words.
inline void refuses_all(const Reader& read, const std::vector<MalformedFile>& files) {
  BOOST_TEST(files.size() >= 20u);
  const MemoryLimit limit;
  for (size_t i = 0; i < files.size(); ++i) BOOST_TEST_CONTEXT("file " << i)
  for (const std::string& part : files[i].parts)
    BOOST_CHECK_EXCEPTION(read(files[i].bytes), FileError, says({part}));
}

/// Every beginning of the file throws FileError.
inline void refuses_every_truncation(const Reader& read, const std::string& whole) {
  for (size_t length = 0; length < whole.size(); ++length)
    BOOST_TEST_CONTEXT("the first " << length << " bytes")
  BOOST_CHECK_THROW(read(whole.substr(0, length)), FileError);
}

/// Changed bits, bytes and lengths do no worse than throw FileError.
inline void survives_damage(const Reader& read, const std::string& whole, int rounds = 2000) {
  const MemoryLimit limit;
  const auto survive = [&](const std::string& bytes) {
    try {
      read(bytes);
    } catch (const FileError&) {
    }
  };
  // All bits of each byte, or one of them.
  for (size_t bit = 0, step = many_cases(8) == 8 ? 1 : 9; bit < whole.size() * 8; bit += step) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    survive(damaged);
  }
  std::mt19937 random(1);
  for (int64_t i = 0; i < many_cases(rounds); ++i) {
    std::string damaged = whole;
    for (unsigned k = 0; k <= random() % 6; ++k)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    if (random() % 4 == 0) damaged.resize(random() % (damaged.size() + 1));
    if (random() % 8 == 0)
      damaged.insert(random() % (damaged.size() + 1), random() % 20, static_cast<char>(random()));
    survive(damaged);
  }
}

}  // namespace espalier::testing
