// A function of each row.
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <source_location>
#include <utility>
#include <vector>

#include "espalier/core/random.h"
#include "espalier/core/tensor.h"
#include "espalier/data/views/row_view.h"

namespace espalier::data {

/// One row: a tensor for each column, without the axis of rows.
using Row = std::vector<Tensor>;

/// Which row it is, for augmentation.
struct RowContext {
  int64_t row = 0;
  int64_t epoch = 0;
  /// The numbers of this row in this epoch, the same ones in every run, thread and process, for
  /// `fill_uniform`, `fill_normal` and `fill_bernoulli`. Draw all that the row needs in one call.
  RandomStream random = {};
};

using RowFunction = std::function<Row(const Row&, const RowContext&)>;

/// The rows that `f` returns for those of `dataset`. It runs each time a row is read, in the thread that
/// reads, and in several at once; its result follows from the row and the context alone. A map of a map draws
/// other numbers. What it returns has the same specs for all rows: those of its first row, for which it is
/// called now, unless `specs` names them (without the axis of rows). Throws DataError: a null dataset, no
/// rows to learn the specs from, or open sizes (map rows before they are padded); and, when rows are read, a
/// result of other specs, naming row and column. What `f` throws is thrown.
DatasetPtr map(DatasetPtr dataset, RowFunction f, std::vector<Spec> specs = {},
               std::source_location where = std::source_location::current());

/// The same for functions of the row alone.
template <class F>
requires(std::invocable<F&, const Row&> && !std::invocable<F&, const Row&, const RowContext&>) DatasetPtr
    map(DatasetPtr dataset, F f, std::vector<Spec> specs = {},
        std::source_location where = std::source_location::current()) {
  if constexpr (requires { f.operator bool(); })  // std::function and its like
    if (!f) return map(std::move(dataset), RowFunction(), std::move(specs), where);
  return map(
      std::move(dataset),
      RowFunction([f = std::move(f)](const Row& row, const RowContext&) mutable -> Row { return f(row); }),
      std::move(specs), where);
}

}  // namespace espalier::data
