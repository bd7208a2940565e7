// Datasets: columns of rows. Views and readers of one's own implement the same functions and compose.
#pragma once
#include <cstdint>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include "espalier/core/random.h"
#include "espalier/core/tensor.h"

namespace espalier::data {

/// For which pass over the data rows are read: what augmentation may depend on beside the row.
struct ReadContext {
  int64_t epoch = 0;
  uint64_t seed = 0;  ///< of the Distributor, or of `batches`

  /// The random numbers of a row in this epoch, 2^32 of them, for fill_uniform, fill_normal and
  /// fill_bernoulli. Draw all that a row needs in one call.
  RandomStream random(int64_t row) const { return row_stream(seed, epoch, row); }
};

/// Columns with the same number of rows, which are the first axis: samples, labels, weights. Reading changes
/// nothing, and may happen in several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  /// A feed counts them once, and throws DataError if there is another number later.
  virtual int64_t rows() const = 0;
  /// dtype and shape of each column, all rows included. Sizes that differ from batch to batch, as the length
  /// of sentences, are -1.
  virtual std::vector<Spec> specs() const = 0;
  /// Writes these rows, in this order, into `outputs`: one contiguous tensor on the CPU for each column,
  /// whose first size is `rows.size()`. What it writes for a row follows from the row alone: not from the
  /// other rows, the thread, or what was read before. Throws IndexError for a row which does not exist. A
  /// tensor that is assigned to an output is copied where it is called; one of another dtype or shape is a
  /// DataError there.
  virtual void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const = 0;
  /// The same for one pass over the data, which is what feeds and `batches` call. What it writes for a row
  /// follows from the row, the epoch and the seed alone, so that batches are the same in every run, on any
  /// number of replicas, and from a checkpoint. Augmentation overrides it, draws from `context.random(row)`,
  /// and has no `columns()`; the default calls `read`.
  virtual void read_in(const ReadContext& /*context*/, std::span<const int64_t> rows,
                       std::span<Tensor> outputs) const {
    read(rows, outputs);
  }
  /// The sizes that are -1 in `specs`, in their order, in a batch of these rows: as many as the longest of
  /// them has. `read` must fill outputs of that size, also if it is asked for only some of the rows.
  virtual std::vector<int64_t> open_sizes(std::span<const int64_t> /*rows*/) const { return {}; }
  /// The columns if they are tensors in memory, of which a device may keep a copy to read rows from instead;
  /// otherwise none.
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
  /// None for a class derived from this, which may read other rows than the tensors have.
  std::vector<Tensor> columns() const override;

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
