#include "espalier/nn/windows.h"

#include <utility>

#include "espalier/nn/function_state.h"

namespace espalier::nn {

Unfold::Unfold(WindowOptions options)
    : LayerOf(layer_of([options = std::move(options)](const Operand& x) { return unfold(x, options); })) {}
Fold::Fold(Shape sizes, WindowOptions options)
    : LayerOf(layer_of([sizes = std::move(sizes), options = std::move(options)](const Operand& x) {
        return fold(x, sizes, options);
      })) {}
PixelShuffle::PixelShuffle(int64_t factor)
    : LayerOf(layer_of([factor](const Operand& x) { return pixel_shuffle(x, factor); })) {}
PixelUnshuffle::PixelUnshuffle(int64_t factor)
    : LayerOf(layer_of([factor](const Operand& x) { return pixel_unshuffle(x, factor); })) {}
Upsample::Upsample(InterpolateOptions options)
    : LayerOf(
          layer_of([options = std::move(options)](const Operand& x) { return interpolate(x, options); })) {}
ChannelShuffle::ChannelShuffle(int64_t groups)
    : LayerOf(layer_of([groups](const Operand& x) { return channel_shuffle(x, groups); })) {}
LocalResponseNorm::LocalResponseNorm(LocalResponseOptions options)
    : LayerOf(layer_of([options](const Operand& x) { return local_response_norm(x, options); })) {}

}  // namespace espalier::nn
