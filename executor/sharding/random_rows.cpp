#include "espalier/executor/sharding/random_rows.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/executor/graph/user_names.h"

namespace espalier {

void mark_random_rows(Graph& part, const BatchShardings& shardings) {
  for (uint32_t i = 0; i < part.nodes.size(); ++i) {
    GraphNode& n = part.nodes[i];
    if (!n.op->is_random()) continue;
    const BatchValue& value = shardings[i][0];
    if (value.sharding == BatchSharding::replicated) continue;
    if (value.sharding != BatchSharding::rows || !value.in_order())
      throw UnsupportedError(
          fmt::format("get_executor: replicas and micro-batches cannot share out the random numbers of {}: "
                      "the rows of the batch do not lie in their order along one of its axes",
                      in_user_words(n)));
    n.row_runs = value.repeats;
    for (size_t axis = 0; axis < value.axis; ++axis) n.row_runs *= n.outputs[0].shape.dims()[axis];
  }
}

}  // namespace espalier
