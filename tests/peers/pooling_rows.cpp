// Pooling along one to three axes.
#include "bridge.h"

namespace peers {
namespace {

using namespace espalier;

std::optional<PerAxis> stride_of(const Case& c) {
  if (c.has("stride")) return c.integers("stride");
  return {};
}

MaxPoolOptions max_pool_options(const Case& c) {
  return {.kernel = c.integers("kernel"),
          .stride = stride_of(c),
          .padding = c.integers("padding"),
          .dilation = c.integers("dilation"),
          .ceil = c.flag("ceil")};
}

}  // namespace

std::vector<Row> pooling_rows() {
  return {
      {"max_pool", [](const Case& c) -> Outputs { return max_pool(c[0], max_pool_options(c)); }},
      {"max_pool_with_indices",
       [](const Case& c) -> Outputs {
         const PooledWithIndices both = max_pool_with_indices(c[0], max_pool_options(c));
         return {both.values, both.indices};
       }},
      {"avg_pool",
       [](const Case& c) -> Outputs {
         return avg_pool(c[0], {.kernel = c.integers("kernel"),
                                .stride = stride_of(c),
                                .padding = c.integers("padding"),
                                .ceil = c.flag("ceil"),
                                .count_padding = c.flag("count_padding")});
       }},
      {"adaptive_max_pool",
       [](const Case& c) -> Outputs { return adaptive_max_pool(c[0], c.integers("parts")); }},
      {"adaptive_avg_pool",
       [](const Case& c) -> Outputs { return adaptive_avg_pool(c[0], c.integers("parts")); }},
  };
}

}  // namespace peers
