// Tables of numbers as text.
#pragma once
#include <filesystem>
#include <source_location>

#include "espalier/core/tensor.h"

namespace espalier::data {

struct CsvOptions {
  char delimiter = ',';
  /// The first line names the columns and is left out.
  bool header = false;
  DType dtype = DType::float32;
};

/// The numbers of a text file, as [rows, columns]. Spaces around numbers, quotes around them, CRLF and empty
/// lines are accepted. Throws FileError naming file, line and text: a field that is not a number of the dtype
/// or does not fit it, a line with another number of fields than the first, or no numbers at all.
Tensor read_csv(const std::filesystem::path& path, const CsvOptions& options = {},
                std::source_location where = std::source_location::current());

}  // namespace espalier::data
