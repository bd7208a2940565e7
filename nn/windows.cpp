#include "espalier/nn/windows.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/nn/function_state.h"

namespace espalier::nn {

namespace {

void check_positive(std::string_view layer, std::string_view what, double number,
                    const std::source_location& where) {
  located(where, [&] {
    if (!(number > 0 && std::isfinite(number)))
      throw Error(fmt::format("{}: the {} is {}; it must be positive", layer, what, number));
  });
}

}  // namespace

Unfold::Unfold(WindowOptions options)
    : LayerOf(layer_of([options = std::move(options)](const Operand& x) { return unfold(x, options); })) {}
Fold::Fold(Shape sizes, WindowOptions options)
    : LayerOf(layer_of([sizes = std::move(sizes), options = std::move(options)](const Operand& x) {
        return fold(x, sizes, options);
      })) {}
PixelShuffle::PixelShuffle(int64_t factor, Where where)
    : LayerOf(layer_of_several([factor](const Operand& x) { return pixel_shuffle(x, factor); })) {
  check_positive("PixelShuffle", "factor", factor, where);
}
PixelUnshuffle::PixelUnshuffle(int64_t factor, Where where)
    : LayerOf(layer_of_several([factor](const Operand& x) { return pixel_unshuffle(x, factor); })) {
  check_positive("PixelUnshuffle", "factor", factor, where);
}
Upsample::Upsample(InterpolateOptions options, Where where)
    : LayerOf(layer_of_several([=](const Operand& x) { return interpolate(x, options); })) {
  located(where, [&] {
    if (options.size.empty() == options.scale.empty())
      throw Error("Upsample: takes either the sizes of the result or the scales of the axes");
  });
  for (const int64_t size : options.size) check_positive("Upsample", "size", size, where);
  for (const double scale : options.scale) check_positive("Upsample", "scale", scale, where);
}
ChannelShuffle::ChannelShuffle(int64_t groups, Where where)
    : LayerOf(layer_of_several([groups](const Operand& x) { return channel_shuffle(x, groups); })) {
  check_positive("ChannelShuffle", "number of groups", groups, where);
}
LocalResponseNorm::LocalResponseNorm(LocalResponseOptions options)
    : LayerOf(layer_of([options](const Operand& x) { return local_response_norm(x, options); })) {}

}  // namespace espalier::nn
