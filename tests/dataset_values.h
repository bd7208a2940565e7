// What a dataset shows, as numbers.
#pragma once
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <numeric>
#include <vector>

#include "espalier/core/random.h"
#include "espalier/data/dataset.h"
#include "espalier/data/views/row_view.h"

namespace espalier::testing {

/// These rows of all columns, in this epoch.
inline std::vector<Tensor> read_rows(const data::Dataset& dataset, const std::vector<int64_t>& rows,
                                     const data::ReadContext& context = {}) {
  std::vector<Tensor> outputs =
      data::room_for_rows(dataset, static_cast<int64_t>(rows.size()), dataset.open_sizes(rows));
  dataset.read_in(context, rows, outputs);
  return outputs;
}

/// The first column of all rows, of one int64 a row, in this epoch.
inline std::vector<int64_t> shown_rows(const data::DatasetPtr& dataset, int64_t epoch = 0,
                                       uint64_t seed = 0) {
  std::vector<int64_t> rows(static_cast<size_t>(dataset->rows()));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  const Tensor first = read_rows(*dataset, rows, {epoch, seed})[0];
  const auto values = first.span<int64_t>();
  return {values.begin(), values.end()};
}

/// Rows that are their own numbers.
inline data::DatasetPtr numbered(int64_t rows) {
  return std::make_shared<data::TensorDataset>(std::vector{arange(rows, int64)});
}

/// Each row: its number, and one that is drawn for it in the epoch.
struct DrawingDataset : data::Dataset {
  explicit DrawingDataset(int64_t rows) : count(rows) {}
  int64_t rows() const override { return count; }
  std::vector<Spec> specs() const override { return {{int64, {count}}, {float64, {count}}}; }
  void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const override {
    read_in({}, rows, outputs);
  }
  void read_in(const data::ReadContext& context, std::span<const int64_t> rows,
               std::span<Tensor> outputs) const override {
    for (size_t i = 0; i < rows.size(); ++i) {
      outputs[0].span<int64_t>()[i] = rows[i];
      fill_uniform(context.random(rows[i]), outputs[1].data<double>() + i, 1, 0, 1);
    }
  }
  int64_t count;
};

}  // namespace espalier::testing
