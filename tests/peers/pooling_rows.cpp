// Pooling along one to three axes.
#include "bridge.h"

namespace peers {
namespace {

using namespace espalier;

OptionalPerAxis stride_of(const Case& c) {
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

FractionalPoolOptions fractional_options(const Case& c) {
  FractionalPoolOptions options{.kernel = c.integers("kernel")};
  if (c.has("parts")) options.parts = c.integers("parts");
  if (c.has("ratio")) options.ratio = c.reals("ratio");
  return options;
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
      {"lp_pool",
       [](const Case& c) -> Outputs {
         return lp_pool(c[0], {.kernel = c.integers("kernel"),
                               .p = c.real("p"),
                               .stride = stride_of(c),
                               .ceil = c.flag("ceil")});
       }},
      {"fractional_max_pool",
       [](const Case& c) -> Outputs { return fractional_max_pool(c[0], fractional_options(c), c[1]); }},
      {"fractional_max_pool_with_indices",
       [](const Case& c) -> Outputs {
         const PooledWithIndices both = fractional_max_pool_with_indices(c[0], fractional_options(c), c[1]);
         return {both.values, both.indices};
       }},
      {"max_unpool",
       [](const Case& c) -> Outputs {
         MaxUnpoolOptions options{
             .kernel = c.integers("kernel"), .stride = stride_of(c), .padding = c.integers("padding")};
         if (c.has("size")) options.size = c.integers("size");
         return max_unpool(c[0], c[1], options);
       }},
      {"global_max_pool", [](const Case& c) -> Outputs { return global_max_pool(c[0]); }},
      {"global_avg_pool", [](const Case& c) -> Outputs { return global_avg_pool(c[0]); }},
      {"global_lp_pool", [](const Case& c) -> Outputs { return global_lp_pool(c[0], c.real("p")); }},
      {"adaptive_max_pool",
       [](const Case& c) -> Outputs { return adaptive_max_pool(c[0], c.integers("parts")); }},
      {"adaptive_max_pool_with_indices",
       [](const Case& c) -> Outputs {
         const PooledWithIndices both = adaptive_max_pool_with_indices(c[0], c.integers("parts"));
         return {both.values, both.indices};
       }},
      {"adaptive_avg_pool",
       [](const Case& c) -> Outputs { return adaptive_avg_pool(c[0], c.integers("parts")); }},
  };
}

}  // namespace peers
