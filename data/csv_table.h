// Tables as text whose columns have names, numbers or words, and gaps.
#pragma once
#include <cstdint>
#include <filesystem>
#include <source_location>
#include <string>
#include <vector>

#include "espalier/core/name_at.h"
#include "espalier/core/tensor.h"

namespace espalier::data {

struct CsvTableOptions {
  char delimiter = ',';
  /// The first line names the columns; otherwise their names are "0", "1", ….
  bool header = true;
  /// Lines that begin with this character are left out; '\0': none.
  char comment = '\0';
  /// What stands for a value that is missing. Spaces around a field do not count, unless they are quoted.
  std::vector<std::string> missing = {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?"};
  /// Columns whose fields are words, even if all of them are numbers.
  std::vector<std::string> text = {};
  /// Of columns of numbers.
  DType dtype = DType::float32;
};

struct CsvColumn {
  std::string name = {};
  /// [rows]. Numbers have the dtype of the options; what is missing is NaN. Words are int64 positions in
  /// `categories`; what is missing is -1.
  Tensor values = {};
  /// The different words of the column in the order of their bytes; none for numbers.
  std::vector<std::string> categories = {};
  int64_t missing = 0;   ///< how many values are missing
  bool is_text = false;  ///< words, not numbers
};

struct CsvTable {
  std::vector<CsvColumn> columns;
  int64_t rows = 0;

  /// The column of that name. Throws DataError, with the names there are.
  const CsvColumn& operator[](const NameAt& name) const;
  /// These columns of numbers beside each other, [rows, names]; without names, all that are numbers, in their
  /// order. Throws DataError: there is no such column, it is text, or there is none.
  Tensor matrix(const std::vector<std::string>& names = {},
                std::source_location where = std::source_location::current()) const;
};

/// The columns of a text file (RFC 4180): a column whose fields are all numbers, or missing, becomes numbers,
/// any other categories. Quoted fields may contain delimiters, ends of lines and, doubled, quotes. Spaces
/// around fields, CRLF and empty lines are accepted; the locale does not matter. Throws FileError naming
/// file, line and text: another number of fields than in the first line, a quote without end, a number that
/// does not fit the dtype, a value that is missing where the dtype has no NaN, a name that comes twice, or no
/// rows. Throws DataError for a column in `text` that is not there.
CsvTable read_csv_table(const std::filesystem::path& path, const CsvTableOptions& options = {},
                        std::source_location where = std::source_location::current());

struct CsvWriteOptions {
  char delimiter = ',';
  /// Names of the columns, for a first line; none: no such line, or that of the names a table has.
  std::vector<std::string> header = {};
};

/// Writes the elements of `table` [rows, columns] so that they are read back as they are. An existing file is
/// replaced only when the new one is complete. Throws FileError, ShapeError, TypeError for an undefined
/// tensor, and DataError for another number of names than columns or a delimiter that could be part of a
/// number.
void write_csv(const std::filesystem::path& path, const Tensor& table, const CsvWriteOptions& options = {},
               std::source_location where = std::source_location::current());
/// Writes the columns of a table under their names, or those of `header`; what is missing as an empty field.
/// read_csv_table with the same delimiter gives the table back, if it is told the dtype of the numbers, which
/// columns are `text` though all words are numbers, and for words that stand for missing values what is
/// `missing`. Throws FileError; DataError for another number of names than columns, without columns or rows,
/// two columns of one name, and a position that is no category; ShapeError for a column of another length,
/// TypeError for an undefined one.
void write_csv(const std::filesystem::path& path, const CsvTable& table, const CsvWriteOptions& options = {},
               std::source_location where = std::source_location::current());

}  // namespace espalier::data
