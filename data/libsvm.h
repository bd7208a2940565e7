// Tables in LIBSVM's text format: `<label> <index>:<value> <index>:<value> …`, a row a line.
// https://www.csie.ntu.edu.tw/~cjlin/libsvm
#pragma once
#include <cstdint>
#include <filesystem>
#include <source_location>

#include "espalier/core/tensor.h"

namespace espalier::data {

struct LibsvmOptions {
  /// Columns of the table; 0: as many as the largest index needs.
  int64_t features = 0;
  /// The first index is 0, not 1.
  bool zero_based = false;
  DType dtype = DType::float32;
};

struct LibsvmTable {
  Tensor features;  ///< [rows, features], with zeros where a line has no index
  Tensor labels;    ///< [rows], of the same dtype
  Tensor queries;   ///< int64 [rows], the numbers after `qid:`; undefined if no line has one
};

/// A dense table of a sparse file. `#` begins a comment; indices of a line ascend. Throws FileError naming
/// file, line and text: what is no number of the dtype, an index out of range or out of order, or more than
/// one label; also if `features` is 0 and the table would take more than 2^30 bytes for indices that the file
/// leaves out. Throws TypeError unless the dtype is float32 or float64.
LibsvmTable read_libsvm(const std::filesystem::path& path, const LibsvmOptions& options = {},
                        std::source_location where = std::source_location::current());

/// Writes the elements that are not 0 of real `features` [rows, features] with their `labels` [rows], of any
/// dtype; numbers are read back as they are. Throws FileError, ShapeError and TypeError.
void write_libsvm(const std::filesystem::path& path, const Tensor& features, const Tensor& labels,
                  const LibsvmOptions& options = {},
                  std::source_location where = std::source_location::current());

}  // namespace espalier::data
