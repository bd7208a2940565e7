// Images in other sizes, and read at places between their elements.
#include "bridge.h"

namespace peers {
namespace {

using namespace espalier;

Interpolation interpolation(const std::string& name) {
  if (name == "nearest") return Interpolation::nearest;
  if (name == "nearest-exact") return Interpolation::nearest_exact;
  return name == "linear" ? Interpolation::linear : Interpolation::cubic;
}

SampleMode sample_mode(const std::string& name) {
  if (name == "linear") return SampleMode::linear;
  return name == "nearest" ? SampleMode::nearest : SampleMode::cubic;
}

SamplePadding sample_padding(const std::string& name) {
  if (name == "zeros") return SamplePadding::zeros;
  return name == "border" ? SamplePadding::border : SamplePadding::reflection;
}

}  // namespace

std::vector<Row> image_rows() {
  return {
      {"interpolate",
       [](const Case& c) -> Outputs {
         InterpolateOptions options{.mode = interpolation(c.text("mode"))};
         if (c.has("size")) options.size = c.integers("size");
         if (c.has("scale")) options.scale = c.reals("scale");
         if (c.has("align_corners")) options.align_corners = c.flag("align_corners");
         return interpolate(c[0], options);
       }},
      {"affine_grid",
       [](const Case& c) -> Outputs {
         return affine_grid(c[0], c.integers("sizes"), c.flag("align_corners"));
       }},
      {"grid_sample",
       [](const Case& c) -> Outputs {
         return grid_sample(c[0], c[1],
                            {.mode = sample_mode(c.text("mode")),
                             .padding = sample_padding(c.text("padding")),
                             .align_corners = c.flag("align_corners")});
       }},
  };
}

}  // namespace peers
