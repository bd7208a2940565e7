#include "espalier/nn/padding.h"

#include <utility>

#include "espalier/nn/function_state.h"

namespace espalier::nn {

namespace {

std::shared_ptr<LayerState> padding_layer(std::vector<Padding> paddings, PadOptions options) {
  return layer_of(
      [paddings = std::move(paddings), options](const Operand& x) { return pad(x, paddings, options); });
}

}  // namespace

Pad::Pad(std::vector<Padding> paddings, PadOptions options)
    : LayerOf(padding_layer(std::move(paddings), options)) {}
ZeroPad::ZeroPad(std::vector<Padding> paddings) : LayerOf(padding_layer(std::move(paddings), {})) {}
ConstantPad::ConstantPad(std::vector<Padding> paddings, double value)
    : LayerOf(padding_layer(std::move(paddings), {.value = value})) {}
ReflectionPad::ReflectionPad(std::vector<Padding> paddings)
    : LayerOf(padding_layer(std::move(paddings), {.mode = PadMode::reflect})) {}
ReplicationPad::ReplicationPad(std::vector<Padding> paddings)
    : LayerOf(padding_layer(std::move(paddings), {.mode = PadMode::replicate})) {}
CircularPad::CircularPad(std::vector<Padding> paddings)
    : LayerOf(padding_layer(std::move(paddings), {.mode = PadMode::circular})) {}

}  // namespace espalier::nn
