// The fields of a text file, by RFC 4180.
#pragma once
#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::data {

/// Splits `text`, which must stay, into lines and fields.
class CsvFields {
 public:
  /// Throws FileError for quotes without end, text after a closing quote, and lines of other lengths than the
  /// first.
  CsvFields(const std::filesystem::path& path, std::string_view text, char delimiter, char comment);

  size_t columns() const { return columns_; }
  size_t lines() const { return numbers_.size(); }
  std::string_view field(size_t line, size_t column) const { return fields_[line * columns_ + column]; }
  /// The number of that line in the file, from 1 on.
  int64_t line_number(size_t line) const { return numbers_[line]; }

 private:
  void parse_line(std::string_view& text);
  std::string_view quoted_field(std::string_view& text);
  std::string_view plain_field(std::string_view& text) const;
  bool blank(char c) const { return (c == ' ' || c == '\t') && c != delimiter_; }
  [[noreturn]] void fail(int64_t line, const std::string& reason) const;

  const std::filesystem::path& path_;
  char delimiter_;
  size_t columns_ = 0;
  int64_t line_ = 1;
  std::vector<std::string_view> fields_;
  std::vector<int64_t> numbers_;
  std::deque<std::string> unquoted_;  // fields with quotes in them
};

}  // namespace espalier::data
