#include "espalier/executor/sharding/row_order.h"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace espalier {

bool same_order(const BatchValue& a, const BatchValue& b) {
  return a.repeats == b.repeats && a.block_sizes == b.block_sizes;
}

BatchValue joined_rows(const std::vector<BatchValue>& values, size_t axis) {
  constexpr int64_t most = 4096;  // block sizes; real trees have far fewer
  BatchValue value{BatchSharding::rows, axis, 0, values[0].block_sizes};
  bool alike = true;
  for (const BatchValue& in : values) {
    alike &= in.block_sizes == value.block_sizes;
    value.repeats += in.repeats;
  }
  if (alike) return value;
  Dims all;
  for (const BatchValue& in : values) {
    if (in.repeats * static_cast<int64_t>(in.block_sizes.size()) + static_cast<int64_t>(all.size()) > most)
      return {BatchSharding::unshardable};
    for (int64_t turn = 0; turn < in.repeats; ++turn)
      all.append(in.block_sizes.begin(), in.block_sizes.end());
  }
  size_t period = 1;
  while (all.size() % period || !std::equal(all.begin() + period, all.end(), all.begin())) ++period;
  value.repeats = static_cast<int64_t>(all.size() / period);
  value.block_sizes = Dims(all.begin(), all.begin() + period);
  return value;
}

BatchValue rows_in_view(BatchValue rows, const Layout& from, const Layout& to, size_t axis) {
  const BatchValue unshardable{BatchSharding::unshardable};
  // In elements: from one position to the next, and until the rows begin anew.
  const int64_t step = from.strides[rows.axis], span = step * from.shape.dims()[rows.axis],
                new_step = to.strides[axis], new_span = new_step * to.shape.dims()[axis];
  if (step <= 0 || new_step <= 0 || span <= 0 || (rows.repeats * new_span) % span != 0) return unshardable;
  rows.repeats = rows.repeats * new_span / span;
  for (int64_t& width : rows.block_sizes) {
    if (width * step % new_step != 0) return unshardable;
    width = width * step / new_step;
  }
  return rows.repeats > 0 ? rows : unshardable;
}

BatchValue summed_products(const std::vector<BatchValue>& operands) {
  std::optional<BatchSharding> sum;
  const auto add = [&](BatchSharding sharding) {
    sum = sum && *sum != sharding ? BatchSharding::unshardable : sharding;
  };
  const size_t first = operands.size() % 2;  // one that is added
  if (first)
    add(operands[0].sharding == BatchSharding::rows ? BatchSharding::unshardable : operands[0].sharding);
  for (size_t k = first; k < operands.size() && sum != BatchSharding::unshardable; k += 2) {
    const BatchValue &a = operands[k], &b = operands[k + 1];
    if (a.sharding == BatchSharding::rows || b.sharding == BatchSharding::rows)
      add(a.sharding == b.sharding && same_order(a, b) ? BatchSharding::sum : BatchSharding::unshardable);
    else if (a.sharding == BatchSharding::replicated || b.sharding == BatchSharding::replicated)
      add(a.sharding == BatchSharding::replicated ? b.sharding : a.sharding);
    else
      add(BatchSharding::unshardable);
  }
  return {*sum};
}

}  // namespace espalier
