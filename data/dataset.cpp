#include "espalier/data/dataset.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <type_traits>
#include <typeinfo>

#include "espalier/core/error.h"
#include "espalier/core/random.h"

namespace espalier::data {

namespace {

/// Copies rows of that many bytes. Labels are too short for a call of memcpy each: a constant size becomes a
/// load and a store.
template <class Bytes>
void gather(std::span<const int64_t> rows, const char* from, char* to, Bytes bytes) {
  for (const int64_t row : rows) {
    std::memcpy(to, from + static_cast<size_t>(row) * bytes, bytes);
    to += bytes;
  }
}

bool ascending(std::span<const int64_t> rows) {
  for (size_t i = 1; i < rows.size(); ++i)
    if (rows[i] != rows[0] + static_cast<int64_t>(i)) return false;
  return true;
}

Spec spec_of_rows(const Spec& column, int64_t rows) {
  Spec spec = column;
  spec.shape.dims()[0] = rows;
  return spec;
}

}  // namespace

TensorDataset::TensorDataset(const std::vector<Tensor>& columns) {
  if (columns.empty()) throw DataError("a dataset of no columns: give it at least one tensor");
  for (size_t i = 0; i < columns.size(); ++i) {
    const Tensor& column = columns[i];
    if (!column.defined()) throw DataError(fmt::format("column {} of the dataset is an undefined tensor", i));
    if (column.rank() == 0)
      throw DataError(fmt::format("column {} of the dataset is a scalar: it has no rows", i));
    const int64_t rows = column.shape()[0];
    if (i == 0) rows_ = rows;
    if (rows != rows_)
      throw DataError(
          fmt::format("the columns of a dataset have as many rows each, but column 0 of shape {} has {} and "
                      "column {} of shape {} has {}",
                      columns[0].shape().str(), rows_, i, column.shape().str(), rows));
    columns_.push_back(column.to(cpu()).contiguous_copy());
  }
}

std::vector<Spec> TensorDataset::specs() const {
  std::vector<Spec> specs;
  for (const Tensor& column : columns_) specs.push_back(column.spec());
  return specs;
}

std::vector<Tensor> TensorDataset::columns() const {
  return typeid(*this) == typeid(TensorDataset) ? columns_ : std::vector<Tensor>();
}

void TensorDataset::read(std::span<const int64_t> rows, std::span<Tensor> outputs) const {
  for (const int64_t row : rows)
    if (row < 0 || row >= rows_)
      throw IndexError(fmt::format("row {} of a dataset with {} rows", row, rows_));
  if (rows.empty()) return;
  const bool block = ascending(rows);
  for (size_t i = 0; i < columns_.size(); ++i) {
    const char* from = static_cast<const char*>(columns_[i].address());
    char* to = static_cast<char*>(outputs[i].address());
    const size_t bytes = columns_[i].bytes() / static_cast<size_t>(rows_);
    if (block && bytes)
      std::memcpy(to, from + static_cast<size_t>(rows[0]) * bytes, rows.size() * bytes);
    else if (bytes == 4)
      gather(rows, from, to, std::integral_constant<size_t, 4>());
    else if (bytes == 8)
      gather(rows, from, to, std::integral_constant<size_t, 8>());
    else if (bytes)
      gather(rows, from, to, bytes);
  }
}

std::pair<std::vector<Tensor>, std::vector<Tensor>> split(const std::vector<Tensor>& columns, double fraction,
                                                          uint64_t seed, std::source_location where) {
  return located(where, [&] {
    if (!(fraction >= 0 && fraction <= 1))
      throw DataError(fmt::format("split: the fraction is {}, which is not between 0 and 1", fraction));
    const TensorDataset dataset(columns);
    std::vector<int64_t> order(static_cast<size_t>(dataset.rows()));
    permutation(seed, 0, order.data(), dataset.rows());
    const std::span<const int64_t> all(order);
    const auto part = [&](std::span<const int64_t> rows) {
      std::vector<Tensor> outputs;
      for (const Spec& column : dataset.specs()) {
        const Spec spec = spec_of_rows(column, static_cast<int64_t>(rows.size()));
        outputs.emplace_back(spec.shape, spec.dtype);
      }
      dataset.read(rows, outputs);
      return outputs;
    };
    const auto first = static_cast<size_t>(std::llround(fraction * static_cast<double>(dataset.rows())));
    return std::pair(part(all.first(first)), part(all.subspan(first)));
  });
}

}  // namespace espalier::data
