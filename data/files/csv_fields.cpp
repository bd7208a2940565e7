#include "espalier/data/files/csv_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/data/files/text_line.h"

namespace espalier::data {

CsvFields::CsvFields(const std::filesystem::path& path, std::string_view text, char delimiter, char comment)
    : path_(path), delimiter_(delimiter) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // the mark that spreadsheets put before UTF-8
  while (!text.empty()) {
    std::string_view rest = text;
    const std::string_view line = take_line(rest);
    const bool is_comment = comment != '\0' && trimmed(line).starts_with(comment);
    const bool is_empty = std::ranges::all_of(line, [this](char c) { return blank(c) || c == '\r'; });
    if (is_comment || is_empty) {
      text = rest;
      ++line_;
    } else {
      parse_line(text);
    }
  }
}

void CsvFields::parse_line(std::string_view& text) {
  const int64_t number = line_;
  size_t count = 0;
  while (true) {
    while (!text.empty() && blank(text.front())) text.remove_prefix(1);
    const bool quoted = text.starts_with('"');
    fields_.push_back(quoted ? quoted_field(text) : plain_field(text));
    ++count;
    if (text.empty() || text.front() != delimiter_) break;
    text.remove_prefix(1);
  }
  if (text.starts_with('\r')) text.remove_prefix(1);
  if (text.starts_with('\n')) text.remove_prefix(1);
  ++line_;
  if (numbers_.empty()) columns_ = count;
  if (count != columns_) fail(number, fmt::format("{} fields, but the first line has {}", count, columns_));
  numbers_.push_back(number);
}

std::string_view CsvFields::plain_field(std::string_view& text) const {
  const char ends[] = {delimiter_, '\n'};
  const std::string_view field = text.substr(0, text.find_first_of(std::string_view(ends, 2)));
  text.remove_prefix(field.size());
  return trimmed(field, delimiter_ == '\t' ? " \r" : delimiter_ == ' ' ? "\t\r" : " \t\r");
}

std::string_view CsvFields::quoted_field(std::string_view& text) {
  const int64_t begun = line_;
  text.remove_prefix(1);
  std::string joined;  // of the pieces between doubled quotes
  std::string_view field;
  while (true) {
    const size_t end = text.find('"');
    if (end == text.npos) fail(begun, fmt::format("a quote without end before {:?}", shortened(text)));
    field = text.substr(0, end);
    line_ += std::count(field.begin(), field.end(), '\n');
    text.remove_prefix(end + 1);
    if (!text.starts_with('"')) break;
    joined += field;
    joined += '"';
    text.remove_prefix(1);
  }
  if (!joined.empty()) field = unquoted_.emplace_back(joined += field);
  while (!text.empty() && (blank(text.front()) || text.starts_with("\r\n"))) text.remove_prefix(1);
  if (!text.empty() && text.front() != delimiter_ && text.front() != '\n')
    fail(line_, fmt::format("{:?} after the quote that ends field {:?}",
                            shortened(text.substr(0, text.find('\n'))), shortened(field)));
  return field;
}

void CsvFields::fail(int64_t line, const std::string& reason) const {
  throw FileError(fmt::format("{}, line {}: {}", path_.string(), line, reason));
}

}  // namespace espalier::data
