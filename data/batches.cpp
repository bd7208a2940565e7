#include "espalier/data/batches.h"

#include <fmt/format.h>

#include "espalier/core/error.h"

namespace espalier::data::detail {

std::shared_ptr<Feed> batch_feed(std::shared_ptr<const Dataset> dataset, size_t wanted,
                                 const DistributorOptions& options, const std::source_location& where) {
  return located(where, [&] {
    auto feed = make_feed(std::move(dataset), options);
    const size_t columns = feed->specs().size();
    if (columns != wanted) throw DataError(fmt::format("batches<{}>() of {} columns", wanted, columns));
    return feed;
  });
}

std::shared_ptr<Feed> batch_feed(const std::vector<Tensor>& columns, size_t wanted,
                                 const DistributorOptions& options, const std::source_location& where) {
  auto dataset = located(where, [&] { return std::make_shared<TensorDataset>(columns); });
  return batch_feed(std::move(dataset), wanted, options, where);
}

}  // namespace espalier::data::detail
