#include "espalier/nn/layer.h"

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/layer_state.h"

namespace espalier::nn {

Layer::Layer(std::shared_ptr<LayerState> state) : Module(std::move(state)) {}

LayerState& Layer::layer_state() const { return static_cast<LayerState&>(*state()); }

Variable Layer::operator()(const Variable& x, Where where) const {
  CallScope scope(where);
  return located(*build_context().where, [&] {
    (void)x.shape();  // an undefined Variable throws here, in every layer alike
    return layer_state().call(x);
  });
}

Layer Layer::clone_layer(const Where& where) const {
  return located(where, [&] {
    ModuleState::Clones made;
    return Layer(layer_state().clone(made));
  });
}

}  // namespace espalier::nn
