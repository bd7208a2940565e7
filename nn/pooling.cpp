#include "espalier/nn/pooling.h"

#include <fmt/format.h>

#include <utility>

#include "espalier/core/error.h"
#include "espalier/nn/function_state.h"
#include "espalier/ops/pooling/forms.h"

namespace espalier::nn {

namespace {

/// `function(x, options)` for inputs with that many axes behind batch and channels.
template <class Options>
std::shared_ptr<LayerState> pooling_layer(std::string_view kind, size_t axes,
                                          Variable (*function)(const Operand&, const Options&),
                                          Options options) {
  return layer_of(kind, [kind, axes, function, options = std::move(options)](const Variable& x) {
    if (x.rank() != axes + 2)
      throw ShapeError(fmt::format("{}: takes [batch, channels] and {} more {}, not {}", kind, axes,
                                   axes == 1 ? "axis" : "axes", x.shape().str()));
    return function(x, options);
  });
}

std::shared_ptr<LayerState> max_pooling(std::string_view kind, size_t axes, MaxPoolOptions o,
                                        const std::source_location& where) {
  located(where, [&] { (void)form_of({o.kernel, o.stride, o.padding, o.dilation, o.ceil}, axes, kind); });
  return pooling_layer(kind, axes, max_pool, std::move(o));
}
std::shared_ptr<LayerState> average_pooling(std::string_view kind, size_t axes, AveragePoolOptions o,
                                            const std::source_location& where) {
  located(where, [&] { (void)form_of({o.kernel, o.stride, o.padding, 1, o.ceil}, axes, kind); });
  return pooling_layer(kind, axes, avg_pool, std::move(o));
}

}  // namespace

MaxPool1d::MaxPool1d(MaxPoolOptions options, Where where)
    : LayerOf(max_pooling("MaxPool1d", 1, std::move(options), where)) {}
MaxPool2d::MaxPool2d(MaxPoolOptions options, Where where)
    : LayerOf(max_pooling("MaxPool2d", 2, std::move(options), where)) {}
MaxPool3d::MaxPool3d(MaxPoolOptions options, Where where)
    : LayerOf(max_pooling("MaxPool3d", 3, std::move(options), where)) {}

AvgPool1d::AvgPool1d(AveragePoolOptions options, Where where)
    : LayerOf(average_pooling("AvgPool1d", 1, std::move(options), where)) {}
AvgPool2d::AvgPool2d(AveragePoolOptions options, Where where)
    : LayerOf(average_pooling("AvgPool2d", 2, std::move(options), where)) {}
AvgPool3d::AvgPool3d(AveragePoolOptions options, Where where)
    : LayerOf(average_pooling("AvgPool3d", 3, std::move(options), where)) {}

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
