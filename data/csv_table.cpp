#include "espalier/data/csv_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string_view>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/data/files/csv_fields.h"
#include "espalier/data/files/text_line.h"

namespace espalier::data {

namespace {

void check_delimiter(char delimiter, char comment) {
  if (std::strchr("\"\r\n", delimiter) || delimiter == comment)
    throw DataError(fmt::format("the delimiter {:?} is also a quote, a comment or a line's end", delimiter));
}

class CsvTableBuilder {
 public:
  CsvTableBuilder(const std::filesystem::path& path, const CsvTableOptions& options, const CsvFields& fields)
      : path_(path), options_(options), fields_(fields), first_(options.header ? 1 : 0) {}

  CsvTable build(const std::source_location& where) {
    if (fields_.lines() <= first_) throw FileError(fmt::format("{} holds no rows", path_.string()));
    CsvTable table;
    table.rows = static_cast<int64_t>(fields_.lines() - first_);
    std::set<std::string> names;
    for (size_t column = 0; column < fields_.columns(); ++column) {
      std::string name = options_.header ? std::string(fields_.field(0, column)) : fmt::format("{}", column);
      if (!names.insert(name).second) fail(0, fmt::format("two columns are named {:?}", name));
      table.columns.push_back({.name = std::move(name)});
    }
    for (const std::string& name : options_.text) (void)table[{name, where}];
    for (size_t column = 0; column < fields_.columns(); ++column) {
      CsvColumn& result = table.columns[column];
      if (std::ranges::count(options_.text, result.name) == 0 && is_numbers(column))
        read_numbers(column, result);
      else
        read_words(column, result);
    }
    return table;
  }

 private:
  bool is_missing(std::string_view field) const {
    return std::ranges::find(options_.missing, field) != options_.missing.end();
  }

  /// Spaces count in words alone: a column of nothing but quoted spaces has words.
  bool is_numbers(size_t column) const {
    double ignored = 0;
    bool counts = true;
    size_t numbers = 0;
    for (size_t line = first_; line < fields_.lines(); ++line) {
      const std::string_view field = fields_.field(line, column), text = trimmed(field);
      counts &= is_missing(field) || !is_missing(text);
      if (is_missing(text)) continue;
      if (parse_number(text, ignored) == NumberText::no_number) return false;
      ++numbers;
    }
    return counts || numbers > 0;
  }

  void read_numbers(size_t column, CsvColumn& result) const {
    const DType wide = is_half(options_.dtype) ? DType::float32 : options_.dtype;
    result.values = Tensor({static_cast<int64_t>(fields_.lines() - first_)}, wide);
    visit(wide, [&]<class T>(TypeTag<T>) {
      T* out = result.values.data<T>();
      for (size_t line = first_; line < fields_.lines(); ++line, ++out) {
        const std::string_view field = trimmed(fields_.field(line, column));
        if (!is_missing(field)) {
          *out = number<T>(line, column, field);
          continue;
        }
        ++result.missing;
        if constexpr (std::is_floating_point_v<T>)
          *out = std::numeric_limits<T>::quiet_NaN();
        else
          fail(line,
               fmt::format("column {:?} is missing, and {} has no NaN for it", result.name, name(wide)));
      }
    });
    if (wide != options_.dtype) result.values = result.values.to(options_.dtype);
  }

  template <class T>
  T number(size_t line, size_t column, std::string_view field) const {
    using Parsed = std::conditional_t<std::is_same_v<T, bool>, int64_t, T>;
    Parsed value{};
    const NumberText found = parse_number(field, value);
    const bool fits = found == NumberText::number && !(std::is_same_v<T, bool> && value != 0 && value != 1) &&
                      !overflows_half(static_cast<double>(value));
    if (!fits)
      fail(line, fmt::format("field {}, {:?}, {} {}", column + 1, shortened(field),
                             found == NumberText::no_number ? "is not a number of type" : "does not fit",
                             name(options_.dtype)));
    return static_cast<T>(value);
  }

  bool overflows_half(double value) const {
    if (!is_half(options_.dtype) || std::isinf(value)) return false;
    const auto single = static_cast<float>(value);
    return std::isinf(options_.dtype == DType::float16 ? static_cast<float>(Float16(single))
                                                       : static_cast<float>(BFloat16(single)));
  }

  void read_words(size_t column, CsvColumn& result) const {
    std::set<std::string_view> words;
    for (size_t line = first_; line < fields_.lines(); ++line)
      if (const std::string_view field = fields_.field(line, column); !is_missing(field)) words.insert(field);
    result.is_text = true;
    result.categories.assign(words.begin(), words.end());
    result.values = Tensor({static_cast<int64_t>(fields_.lines() - first_)}, DType::int64);
    int64_t* out = result.values.data<int64_t>();
    for (size_t line = first_; line < fields_.lines(); ++line, ++out) {
      const std::string_view field = fields_.field(line, column);
      const auto found = std::ranges::lower_bound(result.categories, field);
      *out = is_missing(field) ? -1 : found - result.categories.begin();
      result.missing += *out < 0;
    }
  }

  [[noreturn]] void fail(size_t line, const std::string& reason) const {
    throw FileError(fmt::format("{}, line {}: {}", path_.string(), fields_.line_number(line), reason));
  }

  const std::filesystem::path& path_;
  const CsvTableOptions& options_;
  const CsvFields& fields_;
  const size_t first_;
};

bool needs_quotes(std::string_view text, char delimiter) {
  const char special[] = {'"', '\r', '\n', delimiter};
  return text.find_first_of(std::string_view(special, sizeof special)) != text.npos || trimmed(text) != text;
}
std::string csv_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + "\"";
}

constexpr size_t megabyte = size_t{1} << 20;

/// A file of lines, which is there when it is complete.
class CsvWriter {
 public:
  CsvWriter(const std::filesystem::path& path, char delimiter, size_t columns)
      : file_(path), delimiter_(delimiter), columns_(columns) {}

  void word(std::string_view text) {
    // A line of one empty field would be an empty line.
    const bool quotes = (text.empty() && columns_ == 1) || needs_quotes(text, delimiter_);
    quotes ? add(csv_quoted(text)) : add(text);
  }
  template <class T>
  void number(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      word(value ? "1" : "0");
    } else {
      char digits[64];
      const char* const end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
      word(std::string_view(digits, static_cast<size_t>(end - digits)));
    }
  }
  void header(const std::vector<std::string>& names) {
    for (const std::string& name : names) word(name);
  }
  void finish() {
    file_.write(text_);
    file_.commit();
  }

 private:
  void add(std::string_view field) {
    text_ += field;
    const bool ends = ++at_ == columns_;
    text_ += ends ? '\n' : delimiter_;
    if (ends) at_ = 0;
    if (text_.size() < megabyte) return;
    file_.write(text_);
    text_.clear();
  }

  AtomicFile file_;
  char delimiter_;
  size_t columns_, at_ = 0;
  std::string text_;
};

/// In a type that is written as numbers are.
Tensor written_values(const Tensor& values) {
  const DType dtype = values.dtype(), wide = is_half(dtype)            ? DType::float32
                                             : is_small_integer(dtype) ? DType::int32
                                                                       : dtype;
  return values.to(cpu()).to(wide).contiguous_copy();
}

void check_names(const CsvWriteOptions& options, size_t columns) {
  if (!options.header.empty() && options.header.size() != columns)
    throw DataError(fmt::format("write_csv: {} names for {} columns", options.header.size(), columns));
}

void check_differ(const std::vector<std::string>& names) {
  std::set<std::string_view> known;
  for (const std::string& name : names)
    if (!known.insert(name).second)
      throw DataError(fmt::format("write_csv: two columns are named {:?}", name));
}

/// The values of a column as they are written, after a check of all that it says.
Tensor checked_values(const CsvColumn& column, int64_t rows) {
  if (!column.values.defined())
    throw TypeError(fmt::format("write_csv: the values of column {:?} are an undefined tensor", column.name));
  if (!(column.values.shape() == Shape{rows}))
    throw ShapeError(fmt::format("write_csv: column {:?} has the shape {} in a table of {} rows", column.name,
                                 column.values.shape().str(), rows));
  if (!column.is_text) return written_values(column.values);
  if (column.values.dtype() != DType::int64)
    throw TypeError(fmt::format("write_csv: the words of column {:?} are positions of type int64, not {}",
                                column.name, name(column.values.dtype())));
  const Tensor positions = written_values(column.values);
  const auto words = static_cast<int64_t>(column.categories.size());
  for (const int64_t position : positions.span<int64_t>())
    if (position < -1 || position >= words)
      throw DataError(fmt::format("write_csv: column {:?} has the position {} among {} categories",
                                  column.name, position, words));
  return positions;
}

void write_field(CsvWriter& out, const CsvColumn& column, const Tensor& values, int64_t row) {
  if (column.is_text) {
    const int64_t position = values.at<int64_t>({row});
    return out.word(position < 0 ? "" : column.categories[static_cast<size_t>(position)]);
  }
  visit(values.dtype(), [&]<class T>(TypeTag<T>) {
    const T value = values.at<T>({row});
    if constexpr (std::is_floating_point_v<T>)
      if (std::isnan(value)) return out.word("");
    out.number(value);
  });
}

}  // namespace

const CsvColumn& CsvTable::operator[](const NameAt& name) const {
  const auto found = std::ranges::find(columns, name.text, &CsvColumn::name);
  if (found != columns.end()) return *found;
  return located(name.where, [&]() -> const CsvColumn& {
    std::string list;
    for (const CsvColumn& column : columns)
      list += fmt::format("{}{:?}", list.empty() ? "" : ", ", column.name);
    throw DataError(fmt::format("the table has no column {:?}; its columns are {}", name.text, list));
  });
}

Tensor CsvTable::matrix(const std::vector<std::string>& names, std::source_location where) const {
  return located(where, [&] {
    std::vector<const CsvColumn*> chosen;
    for (const std::string& name : names) chosen.push_back(&(*this)[{name, where}]);
    if (names.empty())
      for (const CsvColumn& column : columns)
        if (!column.is_text) chosen.push_back(&column);
    if (chosen.empty()) throw DataError("matrix: the table has no column of numbers");
    for (const CsvColumn* column : chosen)
      if (column->is_text)
        throw DataError(fmt::format("matrix: column {:?} is text of {} categories, not numbers", column->name,
                                    column->categories.size()));
    Tensor result({rows, static_cast<int64_t>(chosen.size())}, chosen[0]->values.dtype());
    for (size_t i = 0; i < chosen.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      Tensor place = result.slice(1, at, at + 1);
      copy_elements(chosen[i]->values.reshape({rows, 1}), place);
    }
    return result;
  });
}

CsvTable read_csv_table(const std::filesystem::path& path, const CsvTableOptions& options,
                        std::source_location where) {
  return located(where, [&] {
    check_delimiter(options.delimiter, options.comment);
    if (is_small_integer(options.dtype))
      throw TypeError(fmt::format("read_csv_table: the dtype is {}; read int32, and cast it with to()",
                                  name(options.dtype)));
    const std::string text = read_file(path);
    const CsvFields fields(path, text, options.delimiter, options.comment);
    return CsvTableBuilder(path, options, fields).build(where);
  });
}

void write_csv(const std::filesystem::path& path, const Tensor& table, const CsvWriteOptions& options,
               std::source_location where) {
  located(where, [&] {
    check_delimiter_of_numbers(options.delimiter, "write_csv");
    if (!table.defined()) throw TypeError("write_csv: the tensor is undefined");
    if (table.rank() != 2)
      throw ShapeError(fmt::format("write_csv: the shape is {}, not [rows, columns]", table.shape().str()));
    const auto columns = static_cast<size_t>(table.shape()[1]);
    check_names(options, columns);
    const Tensor plain = written_values(table);
    CsvWriter out(path, options.delimiter, columns);
    out.header(options.header);
    visit(plain.dtype(), [&]<class T>(TypeTag<T>) {
      for (const T value : plain.span<T>()) out.number(value);
    });
    out.finish();
  });
}

void write_csv(const std::filesystem::path& path, const CsvTable& table, const CsvWriteOptions& options,
               std::source_location where) {
  located(where, [&] {
    check_delimiter(options.delimiter, '\0');
    if (table.columns.empty() || table.rows < 1)
      throw DataError(fmt::format("write_csv: the table has {} columns and {} rows; both must be at least 1",
                                  table.columns.size(), table.rows));
    check_names(options, table.columns.size());
    std::vector<Tensor> values;
    std::vector<std::string> names = options.header;
    for (const CsvColumn& column : table.columns) {
      values.push_back(checked_values(column, table.rows));
      if (options.header.empty()) names.push_back(column.name);
    }
    check_differ(names);
    CsvWriter out(path, options.delimiter, names.size());
    out.header(names);
    for (int64_t row = 0; row < table.rows; ++row)
      for (size_t i = 0; i < values.size(); ++i) write_field(out, table.columns[i], values[i], row);
    out.finish();
  });
}

}  // namespace espalier::data
