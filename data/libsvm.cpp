#include "espalier/data/libsvm.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/data/files/text_line.h"

namespace espalier::data {

namespace {

constexpr int64_t most_unasked_bytes = int64_t{1} << 30;

/// Elements of a sparse table, row by row.
template <class T>
struct SparseRows {
  std::vector<T> labels, values;
  std::vector<int64_t> queries, columns, begins;
};

template <class T>
class LibsvmParser {
 public:
  LibsvmParser(const std::filesystem::path& path, const LibsvmOptions& options)
      : path_(path), options_(options) {}

  LibsvmTable parse(std::string_view text) {
    while (!text.empty()) {
      std::string_view line = take_line(text);
      ++line_;
      line = trimmed(line.substr(0, line.find('#')));
      if (!line.empty()) parse_line(line);
    }
    const auto rows = static_cast<int64_t>(rows_.labels.size());
    if (rows == 0) throw FileError(fmt::format("{} holds no rows", path_.string()));
    LibsvmTable table;
    table.features = dense(rows);
    table.labels = tensor_from(rows_.labels, {rows});
    if (has_queries_) table.queries = tensor_from(rows_.queries, {rows});
    return table;
  }

 private:
  static std::string_view take_word(std::string_view& line) {
    const std::string_view word = line.substr(0, line.find_first_of(" \t"));
    line = trimmed(line.substr(word.size()));
    return word;
  }

  void parse_line(std::string_view line) {
    const std::string_view label = take_word(line);
    if (label.find(',') != label.npos) fail(label, "is several labels; a row has one");
    if (label.find(':') != label.npos) fail(label, "stands where the row's label should");
    rows_.begins.push_back(static_cast<int64_t>(rows_.columns.size()));
    rows_.labels.push_back(number<T>(label));
    const bool query = line.starts_with("qid:");
    if (rows_.labels.size() == 1) has_queries_ = query;
    if (query != has_queries_)
      fail(line, query ? "has a query, which rows before it have not" : "has no query");
    if (query) rows_.queries.push_back(number<int64_t>(take_word(line).substr(4)));
    int64_t before = -1;
    while (!line.empty()) {
      const std::string_view word = take_word(line);
      const size_t colon = word.find(':');
      if (colon == word.npos) fail(word, "is not of the form index:value");
      const auto index = number<int64_t>(word.substr(0, colon));
      const int64_t first = options_.zero_based ? 0 : 1;
      if (index < first) fail(word, fmt::format("has an index below {}", first));
      const int64_t column = index - first;
      if (options_.features > 0 && column >= options_.features)
        fail(word, fmt::format("has an index beyond .features = {}", options_.features));
      if (column <= before) fail(word, "has an index that does not ascend");
      before = column;
      rows_.columns.push_back(column);
      rows_.values.push_back(number<T>(word.substr(colon + 1)));
      if (column == std::numeric_limits<int64_t>::max()) fail(word, "has an index that is too large");
      if (column < width_) continue;
      width_ = column + 1;
      widest_ = line_;
    }
  }

  Tensor dense(int64_t rows) const {
    const int64_t width = options_.features > 0 ? options_.features : width_;
    int64_t bytes = 0;
    const bool overflow = __builtin_mul_overflow(rows, width, &bytes) ||
                          __builtin_mul_overflow(bytes, static_cast<int64_t>(sizeof(T)), &bytes);
    const int64_t needed = static_cast<int64_t>(rows_.values.size() * sizeof(T));
    if (overflow || (options_.features == 0 && bytes - needed > most_unasked_bytes))
      throw FileError(
          options_.features > 0
              ? fmt::format("{} has {} rows: with .features = {}, no table can hold them", path_.string(),
                            rows, width)
              : fmt::format(
                    "{}, line {}: the index {} makes a dense table of {} rows take more than {} bytes "
                    "beyond what the file holds; .features = {} allows it",
                    path_.string(), widest_, width - (options_.zero_based ? 1 : 0), rows, most_unasked_bytes,
                    width));
    Tensor table({rows, width}, options_.dtype);
    const std::span<T> out = table.span<T>();
    std::fill(out.begin(), out.end(), T(0));
    for (int64_t row = 0; row < rows; ++row) {
      const auto begin = static_cast<size_t>(rows_.begins[static_cast<size_t>(row)]);
      const size_t end = row + 1 < rows ? static_cast<size_t>(rows_.begins[static_cast<size_t>(row) + 1])
                                        : rows_.values.size();
      for (size_t i = begin; i < end; ++i)
        out[static_cast<size_t>(row * width + rows_.columns[i])] = rows_.values[i];
    }
    return table;
  }

  template <class N>
  N number(std::string_view text) const {
    N value{};
    switch (parse_number(text, value)) {
      case NumberText::no_number: fail(text, "is not a number");
      case NumberText::too_large: fail(text, fmt::format("does not fit {}", name(dtype_of<N>())));
      case NumberText::number: break;
    }
    return value;
  }
  [[noreturn]] void fail(std::string_view text, std::string_view reason) const {
    throw FileError(fmt::format("{}, line {}: {:?} {}", path_.string(), line_, shortened(text), reason));
  }

  const std::filesystem::path& path_;
  const LibsvmOptions& options_;
  SparseRows<T> rows_;
  int64_t width_ = 0;
  int64_t widest_ = 0;  // the line of the largest index
  int64_t line_ = 0;
  bool has_queries_ = false;
};

void check_libsvm_options(const char* call, const LibsvmOptions& options) {
  if (options.dtype != DType::float32 && options.dtype != DType::float64)
    throw TypeError(fmt::format("{}: the dtype is {}, not float32 or float64", call, name(options.dtype)));
  if (options.features < 0)
    throw DataError(fmt::format("{}: .features is {}; it cannot be negative", call, options.features));
}

/// The shortest text that is read back as the same number.
template <class T>
void append_number(std::string& text, T value) {
  char digits[64];
  const auto result = std::to_chars(digits, digits + sizeof(digits), value);
  text.append(digits, result.ptr);
}

}  // namespace

LibsvmTable read_libsvm(const std::filesystem::path& path, const LibsvmOptions& options,
                        std::source_location where) {
  return located(where, [&] {
    check_libsvm_options("read_libsvm", options);
    const std::string text = read_file(path);
    if (options.dtype == DType::float64) return LibsvmParser<double>(path, options).parse(text);
    return LibsvmParser<float>(path, options).parse(text);
  });
}

void write_libsvm(const std::filesystem::path& path, const Tensor& features, const Tensor& labels,
                  const LibsvmOptions& options, std::source_location where) {
  located(where, [&] {
    if (!features.defined() || !labels.defined()) throw TypeError("write_libsvm: a tensor is undefined");
    if (features.rank() != 2 || labels.rank() != 1 || features.shape()[0] != labels.shape()[0])
      throw ShapeError(fmt::format(
          "write_libsvm: features of shape {} and labels of shape {}, not [rows, features] and [rows]",
          features.shape().str(), labels.shape().str()));
    if (!is_real(features.dtype()))
      throw TypeError(fmt::format("write_libsvm: the features are {}, not reals", name(features.dtype())));
    const Tensor x = features.to(cpu()).to(features.dtype() == float64 ? float64 : float32).contiguous_copy();
    const DType label_type = labels.dtype() == float64 ? float64 : is_real(labels.dtype()) ? float32 : int64;
    const Tensor y = labels.to(cpu()).to(label_type).contiguous_copy();
    const int64_t rows = x.shape()[0], width = x.shape()[1];
    std::string text;
    AtomicFile file(path);
    for (int64_t row = 0; row < rows; ++row) {
      visit(label_type, [&]<class T>(TypeTag<T>) {
        append_number(text, static_cast<std::conditional_t<std::is_same_v<T, bool>, int, T>>(
                                y.span<T>()[static_cast<size_t>(row)]));
      });
      visit(x.dtype(), [&]<class T>(TypeTag<T>) {
        if constexpr (std::is_floating_point_v<T>) {
          const T* values = x.data<T>() + row * width;
          for (int64_t column = 0; column < width; ++column) {
            if (values[column] == T(0)) continue;
            text += fmt::format(" {}:", column + (options.zero_based ? 0 : 1));
            append_number(text, values[column]);
          }
        }
      });
      text.push_back('\n');
      if (text.size() > (size_t{1} << 20)) {
        file.write(text);
        text.clear();
      }
    }
    file.write(text);
    file.commit();
  });
}

}  // namespace espalier::data
