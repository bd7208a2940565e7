#include "espalier/nn/layer.h"

#include <string>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/layer_state.h"

namespace espalier::nn {

Layer::Layer(std::shared_ptr<LayerState> state) : Module(std::move(state)) {}

LayerState& Layer::layer_state() const { return static_cast<LayerState&>(*state()); }

Variable Layer::operator()(const Variable& x, Where where) const {
  CallScope scope(where, layer_state().kind());
  return located(*build_context().where, [&] {
    (void)x.shape();  // an undefined Variable throws here, in every layer alike
    return layer_state().call(x);
  });
}

int64_t Layer::register_forward_hook(std::function<Variable(const Variable& x, const Variable& y)> hook,
                                     Where where) const {
  return located(where, [&] { return layer_state().add_hook(std::move(hook)); });
}

void Layer::remove_forward_hook(int64_t id, Where where) const {
  located(where, [&] {
    if (!layer_state().remove_hook(id))
      throw Error("remove_forward_hook: there is no hook " + std::to_string(id));
  });
}

Layer Layer::clone_layer(const Where& where) const {
  return located(where, [&] {
    ModuleState::Clones made;
    return Layer(layer_state().clone(made));
  });
}

}  // namespace espalier::nn
