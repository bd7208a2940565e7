#include "espalier/data/views/by_length.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "espalier/core/error.h"
#include "espalier/core/random.h"

namespace espalier::data {

namespace {

class OrderedRows : public RowView {
 public:
  OrderedRows(DatasetPtr source, std::vector<int64_t> order)
      : RowView(std::move(source), static_cast<int64_t>(order.size())), order_(std::move(order)) {}

 protected:
  std::vector<SourceRow> pick(const ReadContext&, std::span<const int64_t> rows) const override {
    std::vector<SourceRow> picked;
    for (const int64_t row : rows) picked.push_back({order_[static_cast<size_t>(row)]});
    return picked;
  }

 private:
  std::vector<int64_t> order_;
};

std::vector<int64_t> order_of(const Tensor& lengths, const ByLengthOptions& options) {
  const Tensor plain = lengths.to(cpu()).to(int64).contiguous_copy();
  const auto rows = plain.span<int64_t>();
  std::vector<int64_t> sorted(rows.size());
  permutation(options.seed, 0, sorted.data(), plain.elements());
  std::ranges::stable_sort(sorted, {}, [&](int64_t row) { return rows[static_cast<size_t>(row)]; });
  // The last batch may be short: it stays the last, so that all others are whole.
  const int64_t whole = plain.elements() / options.batch_size;
  std::vector<int64_t> batches(static_cast<size_t>(whole)), order;
  permutation(options.seed, 1, batches.data(), whole);
  for (const int64_t batch : batches) {
    const auto first = sorted.begin() + batch * options.batch_size;
    order.insert(order.end(), first, first + options.batch_size);
  }
  order.insert(order.end(), sorted.begin() + whole * options.batch_size, sorted.end());
  return order;
}

}  // namespace

DatasetPtr by_length(DatasetPtr dataset, const Tensor& lengths, const ByLengthOptions& options,
                     std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_source(dataset, "by_length");
    if (!lengths.defined() || lengths.rank() != 1 || lengths.shape()[0] != dataset->rows())
      throw DataError(fmt::format(
          "by_length: {} for {} rows: give it one length for each",
          lengths.defined() ? "lengths of shape " + lengths.shape().str() : "no lengths", dataset->rows()));
    if (is_real(lengths.dtype()))
      throw TypeError(fmt::format("by_length: the lengths are {}, not integers", name(lengths.dtype())));
    if (options.batch_size < 1)
      throw DataError(fmt::format("by_length: a batch size of {}", options.batch_size));
    return std::make_shared<OrderedRows>(dataset, order_of(lengths, options));
  });
}

}  // namespace espalier::data
