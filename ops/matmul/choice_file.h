// A text file of choices that were measured on this machine.
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

  /// Keeps choices in `file`, or only in memory if the path is empty. The header names what the choices
  /// depend on: a file with another header is ignored, and replaced at the next `put`. A damaged line is
  /// ignored. A file that cannot be read or written is no error.
  ChoiceFile(std::filesystem::path file, std::string header);

  /// The choice for a key, if there is one.
  std::optional<std::string> find(const std::string& key);
  /// All choices.
  Choices all();
  /// Adds a choice. It contains no spaces; key and choice contain no newlines. Choices that other processes
  /// have written meanwhile are kept.
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
