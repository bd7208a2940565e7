// Datasets: columns of rows. Views and readers of one's own implement the same three functions and compose.
#pragma once
#include <cstdint>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include "espalier/core/tensor.h"

namespace espalier::data {

/// Columns with the same number of rows, which are the first axis: samples, labels, weights. Reading changes
/// nothing, and may happen in several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t rows() const = 0;
  /// dtype and shape of each column, all rows included.
  virtual std::vector<Spec> specs() const = 0;
  /// Writes these rows, in this order, into `outputs`: one contiguous tensor on the CPU for each column,
  /// whose first size is `rows.size()`. The result depends on the rows alone, not on the thread.
  /// Throws IndexError for a row which does not exist.
  virtual void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const = 0;
  /// The columns if they are tensors in memory, of which a device may keep a copy; otherwise none.
  virtual std::vector<Tensor> columns() const { return {}; }
};

/// Tensors in memory. It shares their buffers, but copies strided tensors and those on another device.
class TensorDataset : public Dataset {
 public:
  /// Throws DataError: no columns, an undefined tensor, a scalar, or different numbers of rows.
  explicit TensorDataset(const std::vector<Tensor>& columns);

  int64_t rows() const override { return rows_; }
  std::vector<Spec> specs() const override;
  void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const override;
  std::vector<Tensor> columns() const override { return columns_; }

 private:
  std::vector<Tensor> columns_;
  int64_t rows_ = 0;
};

/// Two parts of the same columns, say for training and for testing: `fraction` of the rows (rounded) and the
/// others, drawn at random; one seed always draws the same ones. `auto [train, test] = split({x, y}, 0.8);`
/// Throws DataError as TensorDataset does, or if `fraction` is not between 0 and 1.
std::pair<std::vector<Tensor>, std::vector<Tensor>> split(
    const std::vector<Tensor>& columns, double fraction, uint64_t seed = 0,
    std::source_location where = std::source_location::current());

}  // namespace espalier::data
