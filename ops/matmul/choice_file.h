// Choices that were measured on this machine, kept in a file of text.
#pragma once
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace espalier {

class ChoiceFile {
 public:
  using Choices = std::map<std::string, std::string>;

  /// Keeps choices in that file, or in memory alone if the path is empty. A file with another header, which
  /// says what the choices depend on, is ignored, and replaced by the next choice; a damaged line is ignored.
  /// A file that cannot be read or written is no error.
  ChoiceFile(std::filesystem::path file, std::string header);

  /// What was chosen for that key.
  std::optional<std::string> find(const std::string& key);
  /// All that is known.
  Choices all();
  /// Keeps a choice, which has no spaces; neither has newlines. What other processes wrote meanwhile is kept,
  /// too.
  void put(const std::string& key, const std::string& choice);

 private:
  void load();
  Choices read() const;

  const std::filesystem::path file_;
  const std::string header_;
  std::mutex mutex_;
  Choices choices_;
  bool loaded_ = false, writable_ = true;
};

}  // namespace espalier
