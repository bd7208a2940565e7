#include "espalier/data/views/padded.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"

namespace espalier::data {

namespace {

struct PaddedColumn {
  std::vector<Tensor> rows;
  Tensor value;              // a scalar
  std::vector<size_t> open;  // axes of a row whose sizes differ
};

class PaddedRows : public Dataset {
 public:
  PaddedRows(std::vector<PaddedColumn> columns, bool lengths, int64_t multiple)
      : columns_(std::move(columns)), multiple_(multiple) {
    for (size_t i = 0; lengths && i < columns_.size(); ++i)
      if (columns_[i].rows[0].rank() > 0) with_lengths_.push_back(i);
  }

  int64_t rows() const override { return static_cast<int64_t>(columns_[0].rows.size()); }
  std::vector<Spec> specs() const override {
    std::vector<Spec> specs;
    for (const PaddedColumn& column : columns_) {
      const Shape& first = column.rows[0].shape();
      std::vector<int64_t> sizes{rows()};
      sizes.insert(sizes.end(), first.begin(), first.end());
      for (const size_t axis : column.open) sizes[axis + 1] = -1;
      specs.push_back({column.value.dtype(), sizes});
    }
    for (size_t i = 0; i < with_lengths_.size(); ++i) specs.push_back({DType::int64, {rows()}});
    return specs;
  }
  std::vector<int64_t> open_sizes(std::span<const int64_t> rows) const override {
    check_rows(rows, this->rows());
    std::vector<int64_t> sizes;
    for (const PaddedColumn& column : columns_)
      for (const size_t axis : column.open) {
        int64_t largest = 0;
        for (const int64_t row : rows)
          largest = std::max(largest, column.rows[static_cast<size_t>(row)].shape().dims()[axis]);
        sizes.push_back((largest + multiple_ - 1) / multiple_ * multiple_);
      }
    return sizes;
  }
  void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const override {
    check_rows(rows, this->rows());
    for (size_t i = 0; i < columns_.size(); ++i) read_column(columns_[i], rows, outputs[i]);
    for (size_t i = 0; i < with_lengths_.size(); ++i) {
      int64_t* lengths = outputs[columns_.size() + i].data<int64_t>();
      for (const int64_t row : rows)
        *lengths++ = columns_[with_lengths_[i]].rows[static_cast<size_t>(row)].shape().dims()[0];
    }
  }

 private:
  static void read_column(const PaddedColumn& column, std::span<const int64_t> rows, Tensor& output) {
    if (!column.open.empty()) {
      Tensor all(output.storage(), output.layout(), output.dtype());
      copy_elements(Tensor(column.value.storage(), broadcast_layout(column.value.layout(), output.shape()),
                           output.dtype()),
                    all);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      const Tensor& row = column.rows[static_cast<size_t>(rows[i])];
      if (row.elements() == 0) continue;
      const auto at = static_cast<int64_t>(i);
      Tensor place = output.slice(0, at, at + 1);
      std::vector<int64_t> sizes{1};
      for (size_t axis = 0; axis < row.rank(); ++axis) {
        sizes.push_back(row.shape().dims()[axis]);
        place = place.slice(static_cast<int64_t>(axis) + 1, 0, sizes.back());
      }
      copy_elements(row.reshape(sizes), place);
    }
  }

  std::vector<PaddedColumn> columns_;
  int64_t multiple_;
  std::vector<size_t> with_lengths_;
};

PaddedColumn padded_column(const std::vector<Tensor>& rows, size_t number, double value, size_t expected,
                           const std::source_location& where) {
  if (rows.size() != expected)
    throw DataError(
        fmt::format("padded: column 0 has {} rows and column {} has {}", expected, number, rows.size()));
  PaddedColumn column;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].defined())
      throw DataError(fmt::format("padded: row {} of column {} is an undefined tensor", i, number));
    column.rows.push_back(rows[i].to(cpu()));
    const Tensor &row = column.rows[i], &first = column.rows[0];
    if (row.dtype() != first.dtype() || row.rank() != first.rank())
      throw DataError(fmt::format("padded: row {} of column {} is {} {}, and row 0 is {} {}", i, number,
                                  name(row.dtype()), row.shape().str(), name(first.dtype()),
                                  first.shape().str()));
  }
  for (size_t axis = 0; axis < column.rows[0].rank(); ++axis)
    if (std::ranges::any_of(column.rows, [&](const Tensor& row) {
          return row.shape().dims()[axis] != column.rows[0].shape().dims()[axis];
        }))
      column.open.push_back(axis);
  const DType dtype = column.rows[0].dtype();
  column.value = is_real(dtype)
                     ? full({}, value, dtype, where)
                     : full({}, espalier::detail::Number(static_cast<int64_t>(value)), dtype, where);
  if (!is_real(dtype) && column.value.to(float64).item() != value)
    throw TypeError(
        fmt::format("padded: {} has no {}, which shall fill up column {}", name(dtype), value, number));
  return column;
}

}  // namespace

DatasetPtr padded(const std::vector<std::vector<Tensor>>& columns, const PaddedOptions& options,
                  std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    if (columns.empty() || columns[0].empty())
      throw DataError(columns.empty() ? "padded: there are no columns" : "padded: the columns have 0 rows");
    if (options.values.size() > columns.size())
      throw DataError(fmt::format("padded: {} values for {} columns", options.values.size(), columns.size()));
    if (options.multiple < 1)
      throw DataError(fmt::format("padded: sizes are multiples of {}", options.multiple));
    std::vector<PaddedColumn> made;
    for (size_t i = 0; i < columns.size(); ++i)
      made.push_back(padded_column(columns[i], i, i < options.values.size() ? options.values[i] : 0,
                                   columns[0].size(), where));
    return std::make_shared<PaddedRows>(std::move(made), options.lengths, options.multiple);
  });
}

}  // namespace espalier::data
