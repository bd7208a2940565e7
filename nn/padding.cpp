#include "espalier/nn/padding.h"

#include <utility>

#include "espalier/nn/function_state.h"

namespace espalier::nn {

namespace {

std::shared_ptr<LayerState> padding_layer(std::string_view kind, std::vector<Padding> paddings,
                                          PadOptions options) {
  return layer_of(kind, [paddings = std::move(paddings), options](const Operand& x) {
    return pad(x, paddings, options);
  });
}

}  // namespace

Pad::Pad(std::vector<Padding> paddings, PadOptions options)
    : LayerOf(padding_layer("Pad", std::move(paddings), options)) {}
ZeroPad::ZeroPad(std::vector<Padding> paddings)
    : LayerOf(padding_layer("ZeroPad", std::move(paddings), {})) {}
ConstantPad::ConstantPad(std::vector<Padding> paddings, double value)
    : LayerOf(padding_layer("ConstantPad", std::move(paddings), {.value = value})) {}
ReflectionPad::ReflectionPad(std::vector<Padding> paddings)
    : LayerOf(padding_layer("ReflectionPad", std::move(paddings), {.mode = PadMode::reflect})) {}
ReplicationPad::ReplicationPad(std::vector<Padding> paddings)
    : LayerOf(padding_layer("ReplicationPad", std::move(paddings), {.mode = PadMode::replicate})) {}
CircularPad::CircularPad(std::vector<Padding> paddings)
    : LayerOf(padding_layer("CircularPad", std::move(paddings), {.mode = PadMode::circular})) {}

}  // namespace espalier::nn
