// What views of rows of another dataset have in common.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <source_location>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/data/dataset.h"

namespace espalier::data {

/// What Distributor, `batches` and all views take.
using DatasetPtr = std::shared_ptr<const Dataset>;

/// Throws DataError, naming `call`, where there is none.
void check_source(const DatasetPtr& dataset, std::string_view call);

/// Another seed for each number, or the same for 0: of what is drawn for one purpose, or for one showing of a
/// row that an epoch shows several times.
uint64_t derived_seed(uint64_t seed, uint64_t number);

/// A row of the source. The rows that one epoch shows several times have numbers from 0 on, by which
/// augmentation tells them apart.
struct SourceRow {
  int64_t row = 0;
  int64_t showing = 0;
};

/// Rows of one source. A class derived from it says which.
class RowView : public Dataset {
 public:
  int64_t rows() const override { return rows_; }
  std::vector<Spec> specs() const override;
  void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const override {
    read_in({}, rows, outputs);
  }
  void read_in(const ReadContext& context, std::span<const int64_t> rows,
               std::span<Tensor> outputs) const override;
  std::vector<int64_t> open_sizes(std::span<const int64_t> rows) const override;

 protected:
  RowView(DatasetPtr source, int64_t rows) : source_(std::move(source)), rows_(rows) {}
  /// The source's rows for these, which exist.
  virtual std::vector<SourceRow> pick(const ReadContext& context, std::span<const int64_t> rows) const = 0;
  const Dataset& source() const { return *source_; }

 private:
  DatasetPtr source_;
  int64_t rows_ = 0;
};

/// Throws IndexError for one that does not exist.
void check_rows(std::span<const int64_t> rows, int64_t there_are);

/// Buffers for so many rows of the dataset, with these open sizes.
std::vector<Tensor> room_for_rows(const Dataset& dataset, int64_t rows,
                                  std::span<const int64_t> open_sizes = {});

/// How many sizes are open in these specs.
int64_t open_axes_of(const std::vector<Spec>& specs);

/// Lets `read` write the rows of `outputs` at these positions: in their place where they follow each other,
/// else beside it. `read` gets one tensor for each of `outputs`, of as many rows.
template <class Read>
void read_at(std::span<const int64_t> positions, std::span<Tensor> outputs, const Read& read);

namespace detail {
bool follow_each_other(std::span<const int64_t> positions);
std::vector<Tensor> slices_of(std::span<Tensor> outputs, int64_t begin, int64_t end);
std::vector<Tensor> room_like(std::span<Tensor> outputs, int64_t rows);
void copy_rows(std::span<const Tensor> from, std::span<const int64_t> positions, std::span<Tensor> to);
}  // namespace detail

template <class Read>
void read_at(std::span<const int64_t> positions, std::span<Tensor> outputs, const Read& read) {
  if (positions.empty()) return;
  const auto count = static_cast<int64_t>(positions.size());
  const bool in_place = detail::follow_each_other(positions);
  std::vector<Tensor> part = in_place ? detail::slices_of(outputs, positions[0], positions[0] + count)
                                      : detail::room_like(outputs, count);
  read(std::span<Tensor>(part));
  if (!in_place) detail::copy_rows(part, positions, outputs);
}

}  // namespace espalier::data
