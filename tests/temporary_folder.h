// A temporary folder for a test, removed at its end.
#pragma once
#include <stdlib.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

namespace espalier::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "espalier-test-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::filesystem::filesystem_error("mkdtemp", name, std::error_code());
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  /// Writes a file and returns its path.
  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path_ / name;
  }
  /// The number of files in the folder.
  size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

/// A predicate for BOOST_CHECK_EXCEPTION: the message contains all of these texts.
inline auto says(std::initializer_list<std::string> parts) {
  return [parts = std::vector<std::string>(parts)](const std::exception& error) {
    for (const std::string& part : parts) {
      if (std::string(error.what()).find(part) != std::string::npos) continue;
      BOOST_TEST_MESSAGE("\"" << error.what() << "\" does not contain \"" << part << "\"");
      return false;
    }
    return true;
  };
}

}  // namespace espalier::testing
