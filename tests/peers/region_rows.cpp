// Regions of images, and the best of boxes that overlap.
#include "bridge.h"

namespace peers {

using namespace espalier;

std::vector<Row> region_rows() {
  return {
      {"roi_align",
       [](const Case& c) -> Outputs {
         return roi_align(c[0], c[1],
                          {.size = c.integers("size"),
                           .scale = c.real("scale"),
                           .samples = c.integer("samples"),
                           .aligned = c.flag("aligned")});
       }},
      {"roi_pool",
       [](const Case& c) -> Outputs {
         return roi_pool(c[0], c[1], {.size = c.integers("size"), .scale = c.real("scale")});
       }},
      {"nms", [](const Case& c) -> Outputs { return nms(c[0], c[1], c.real("threshold")); }},
      {"batched_nms",
       [](const Case& c) -> Outputs { return batched_nms(c[0], c[1], c[2], c.real("threshold")); }},
      {"non_max_suppression",
       [](const Case& c) -> Outputs {
         SuppressionOptions options{.threshold = c.real("threshold")};
         if (c.has("most")) options.most = c.integer("most");
         if (c.has("least_score")) options.least_score = c.real("least_score");
         return non_max_suppression(c[0], c[1], options);
       }},
  };
}

}  // namespace peers
