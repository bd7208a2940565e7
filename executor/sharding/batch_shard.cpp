#include "espalier/executor/sharding/batch_shard.h"

namespace espalier {

std::vector<Spec> ShardedFeed::specs() const {
  std::vector<Spec> specs = whole_->specs();
  for (Spec& spec : specs)
    if (spec.shape.rank()) spec.shape.dims()[0] = shard_.rows(spec.shape.dims()[0]);
  return specs;
}

void ShardedFeed::order(int64_t epoch, std::span<int64_t> rows) const {
  std::vector<int64_t> all(rows.size());
  whole_->order(epoch, all);
  int64_t first = 0;  // of the step's batch
  auto to = rows.begin();
  for (int64_t step = 0; step < whole_->steps(); ++step) {
    const int64_t count = whole_->rows(step);
    const auto from = all.begin() + first + shard_.begin(count);
    to = std::copy_n(from, shard_.rows(count), to);
    first += count;
  }
  std::fill(to, rows.end(), 0);
}

}  // namespace espalier
