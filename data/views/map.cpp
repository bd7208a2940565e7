#include "espalier/data/views/map.h"

#include <fmt/format.h>

#include <cstring>

#include "espalier/core/error.h"
#include "espalier/data/views/checked_read.h"

namespace espalier::data {

namespace {

/// The shape of a row of a column.
Shape without_rows(const Shape& shape) { return std::vector<int64_t>(shape.begin() + 1, shape.end()); }

class MappedRows : public Dataset {
 public:
  MappedRows(DatasetPtr source, RowFunction f, std::vector<Spec> specs)
      : source_(std::move(source)), f_(std::move(f)), specs_(std::move(specs)) {
    if (open_axes_of(source_->specs()) > 0)
      throw DataError("map: sizes of the dataset are open (-1): map rows before they are padded");
    if (!specs_.empty()) return;
    if (source_->rows() == 0)
      throw DataError("map: the dataset has no row to learn the specs from; name them");
    const int64_t first = 0;
    std::vector<Tensor> inputs = room_for_rows(*source_, 1);
    checked_read(*source_, {&first, 1}, inputs);
    for (const Tensor& column : mapped(inputs, 0, {}, 0)) specs_.push_back(column.spec());
    if (specs_.empty()) throw DataError("map: the function returned a row of no columns");
  }

  int64_t rows() const override { return source_->rows(); }
  std::vector<Spec> specs() const override {
    std::vector<Spec> all = specs_;
    for (Spec& spec : all) {
      std::vector<int64_t> sizes{rows()};
      sizes.insert(sizes.end(), spec.shape.begin(), spec.shape.end());
      spec.shape = sizes;
    }
    return all;
  }
  void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const override {
    read_in({}, rows, outputs);
  }
  void read_in(const ReadContext& context, std::span<const int64_t> rows,
               std::span<Tensor> outputs) const override {
    check_rows(rows, this->rows());
    if (rows.empty()) return;
    std::vector<Tensor> inputs = room_for_rows(*source_, static_cast<int64_t>(rows.size()));
    // Below here, others draw: the same numbers would make two augmentations one.
    checked_read(*source_, {context.epoch, derived_seed(context.seed, 1)}, rows, inputs);
    for (size_t i = 0; i < rows.size(); ++i) {
      const Row row = mapped(inputs, static_cast<int64_t>(i), context, rows[i]);
      check(row, rows[i]);
      for (size_t column = 0; column < row.size(); ++column) {
        const Tensor plain = row[column].to(cpu()).contiguous_copy();
        if (plain.bytes() > 0)
          std::memcpy(static_cast<char*>(outputs[column].address()) + i * plain.bytes(), plain.address(),
                      plain.bytes());
      }
    }
  }

 private:
  /// `f` of that row of a batch.
  Row mapped(std::span<const Tensor> batch, int64_t at, const ReadContext& context, int64_t row) const {
    Row values;
    for (const Tensor& column : batch)
      values.push_back(column.slice(0, at, at + 1).reshape(without_rows(column.shape())));
    return f_(values, {row, context.epoch, context.random(row)});
  }

  void check(const Row& row, int64_t number) const {
    if (row.size() != specs_.size())
      throw DataError(fmt::format("map: the function returned {} columns for row {}, not {}", row.size(),
                                  number, specs_.size()));
    for (size_t column = 0; column < row.size(); ++column) {
      const Tensor& value = row[column];
      if (!value.defined())
        throw DataError(fmt::format("map: the function returned an undefined tensor for row {}, column {}",
                                    number, column));
      if (value.spec() != specs_[column])
        throw DataError(fmt::format("map: the function returned {} {} for row {}, column {}, not {} {}",
                                    name(value.dtype()), value.shape().str(), number, column,
                                    name(specs_[column].dtype), specs_[column].shape.str()));
    }
  }

  DatasetPtr source_;
  RowFunction f_;
  std::vector<Spec> specs_;
};

}  // namespace

DatasetPtr map(DatasetPtr dataset, RowFunction f, std::vector<Spec> specs, std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_source(dataset, "map");
    if (!f) throw DataError("map: there is no function");
    return std::make_shared<MappedRows>(std::move(dataset), std::move(f), std::move(specs));
  });
}

}  // namespace espalier::data
