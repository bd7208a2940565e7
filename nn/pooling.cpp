#include "espalier/nn/pooling.h"

#include <fmt/format.h>

#include <utility>

#include "espalier/core/error.h"
#include "espalier/nn/function_state.h"

namespace espalier::nn {

namespace {

/// `function(x, options)` for inputs with that many axes behind batch and channels.
template <class Options>
std::shared_ptr<LayerState> pooling_layer(std::string_view kind, size_t axes,
                                          Variable (*function)(const Operand&, const Options&),
                                          Options options) {
  return layer_of([kind, axes, function, options = std::move(options)](const Variable& x) {
    if (x.rank() != axes + 2)
      throw ShapeError(fmt::format("{}: takes [batch, channels] and {} more {}, not {}", kind, axes,
                                   axes == 1 ? "axis" : "axes", x.shape().str()));
    return function(x, options);
  });
}

}  // namespace

MaxPool1d::MaxPool1d(MaxPoolOptions options)
    : LayerOf(pooling_layer("MaxPool1d", 1, max_pool, std::move(options))) {}
MaxPool2d::MaxPool2d(MaxPoolOptions options)
    : LayerOf(pooling_layer("MaxPool2d", 2, max_pool, std::move(options))) {}
MaxPool3d::MaxPool3d(MaxPoolOptions options)
    : LayerOf(pooling_layer("MaxPool3d", 3, max_pool, std::move(options))) {}

AvgPool1d::AvgPool1d(AveragePoolOptions options)
    : LayerOf(pooling_layer("AvgPool1d", 1, avg_pool, std::move(options))) {}
AvgPool2d::AvgPool2d(AveragePoolOptions options)
    : LayerOf(pooling_layer("AvgPool2d", 2, avg_pool, std::move(options))) {}
AvgPool3d::AvgPool3d(AveragePoolOptions options)
    : LayerOf(pooling_layer("AvgPool3d", 3, avg_pool, std::move(options))) {}

AdaptiveMaxPool1d::AdaptiveMaxPool1d(PerAxis parts)
    : LayerOf(pooling_layer("AdaptiveMaxPool1d", 1, adaptive_max_pool, std::move(parts))) {}
AdaptiveMaxPool2d::AdaptiveMaxPool2d(PerAxis parts)
    : LayerOf(pooling_layer("AdaptiveMaxPool2d", 2, adaptive_max_pool, std::move(parts))) {}
AdaptiveMaxPool3d::AdaptiveMaxPool3d(PerAxis parts)
    : LayerOf(pooling_layer("AdaptiveMaxPool3d", 3, adaptive_max_pool, std::move(parts))) {}

AdaptiveAvgPool1d::AdaptiveAvgPool1d(PerAxis parts)
    : LayerOf(pooling_layer("AdaptiveAvgPool1d", 1, adaptive_avg_pool, std::move(parts))) {}
AdaptiveAvgPool2d::AdaptiveAvgPool2d(PerAxis parts)
    : LayerOf(pooling_layer("AdaptiveAvgPool2d", 2, adaptive_avg_pool, std::move(parts))) {}
AdaptiveAvgPool3d::AdaptiveAvgPool3d(PerAxis parts)
    : LayerOf(pooling_layer("AdaptiveAvgPool3d", 3, adaptive_avg_pool, std::move(parts))) {}

}  // namespace espalier::nn
